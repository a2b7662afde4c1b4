"""Where an HTTP process listens, and where the edge finds it."""
from urllib.parse import urlsplit

_EVERYWHERE = ("0.0.0.0", "[::]")


def bind_of(explicit: str, url: str) -> str:
    """`host:port` to listen on: the explicit setting, else what the public URL says."""
    if explicit:
        return explicit
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def reached_at(bind: str) -> str:
    """`host:port` at which a process of the same host reaches one that listens on `bind`."""
    host, _, port = bind.rpartition(":")
    return f"127.0.0.1:{port}" if host in _EVERYWHERE else bind
