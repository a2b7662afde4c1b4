"""The address at which browsers find a host that the edge serves: HTTPS, at the edge's port."""
from config.settings import Settings

_HTTPS_PORT = 443


def edge_url(settings: Settings, host: str) -> str:
    """The URL of a host name, without a path; the port is left out where browsers add it."""
    port = "" if settings.edge_port == _HTTPS_PORT else f":{settings.edge_port}"
    return f"https://{host}{port}"
