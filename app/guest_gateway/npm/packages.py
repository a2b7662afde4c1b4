"""Says which of a registry's addresses the cache takes, and rewrites those in its documents.

There are two kinds: the document of a package, which names its versions, and a version's tarball.
Nothing else is passed on, so a guest cannot make the host ask for anything else.
"""
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

# Names by the rules of npm; old packages have capitals.
_NAME = r"(?:@[\w~-][\w.~-]{0,213}(?:/|%2[fF]))?[\w~-][\w.~-]{0,213}"
_DOCUMENT = re.compile(f"/({_NAME})", re.ASCII)
_TARBALL = re.compile(rf"/({_NAME}/-/(?:@[\w~-][\w.~-]{{0,213}}/)?[\w~-][\w.~+-]{{0,213}}\.tgz)",
                      re.ASCII)
_SHORT = "application/vnd.npm.install-v1+json"
_FULL = "application/json"
_ADDRESS = re.compile(rb'("tarball"\s*:\s*")([^"\\]*(?:\\/[^"\\]*)*)"')


@dataclass(frozen=True)
class Wanted:
    """Something that a registry has: its path there, and how it is asked for. The two together are
    all that tells one from another."""

    path: str
    accept: str

    @property
    def is_tarball(self) -> bool:
        """Tarballs never change."""
        return not self.accept

    @property
    def media_type(self) -> str:
        return self.accept or "application/octet-stream"


def find_wanted(path: str, accept: str) -> Wanted | None:
    """What `path`, as it was sent, asks for; None for what the cache does not pass on. Of `accept`
    counts whether the short form of a document will do."""
    if tarball := _TARBALL.fullmatch(path):
        return Wanted(re.sub("%2f", "/", tarball[1], flags=re.IGNORECASE), "")
    if document := _DOCUMENT.fullmatch(path):
        # The form in which npm asks.
        name = re.sub("%2f|/", "%2f", document[1], flags=re.IGNORECASE)
        return Wanted(name, _SHORT if _SHORT in accept else _FULL)
    return None


def rewrite(document: bytes, registry: str, cache: str) -> bytes:
    """A document whose tarballs at `registry` are at `cache` instead; both are addresses without a
    slash at the end. Tarballs that are elsewhere stay there."""
    home = _place(registry)

    def moved(match: re.Match[bytes]) -> bytes:
        try:
            place = _place(match[2].replace(rb"\/", b"/").decode("ascii"))
        except ValueError:
            return match[0]
        path = place[1].removeprefix(home[1])
        if place[0] != home[0] or len(path) == len(place[1]) and home[1]:
            return match[0]
        if not _TARBALL.fullmatch(path):
            return match[0]
        return match[1] + f'{cache}{path}"'.encode()

    return _ADDRESS.sub(moved, document)


def _place(address: str) -> tuple[tuple[str | None, int | None], str]:
    """Host and port, and the path; a registry behind a proxy may name itself with the other
    scheme. Raises ValueError."""
    parts = urlsplit(address)
    port = None if parts.port in (80, 443) else parts.port
    return (parts.hostname, port), parts.path
