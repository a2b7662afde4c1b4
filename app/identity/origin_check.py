"""Keeps pages of other sites from posting to the identity host with a visitor's session."""
from urllib.parse import urlsplit

from flask import Request

from config.settings import Settings
from services.errors import Forbidden

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class OriginCheck:
    """Knows the origins that are ours: the identity host's own and those of
    SVC_BROWSER_ORIGINS."""

    def __init__(self, settings: Settings) -> None:
        ours = (settings.auth_url, *settings.browser_origins)
        self._origins = {_origin(url) for url in ours} - {None}

    def check(self, request: Request) -> None:
        """Raise Forbidden for a request that changes something and comes from a page of another
        site."""
        origin = request.headers.get("Origin")
        # programs send none, browsers always do
        if request.method in _SAFE_METHODS or origin is None:
            return
        if _origin(origin) not in self._origins:
            raise Forbidden("Requests from pages of other sites are not taken.")


def _origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what has no host, such as `null`."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None
