"""Whose address a request on the identity host has: sign-ins are throttled by it.

Behind proxies it is in X-Forwarded-For, where clients may write too. Of its addresses only the last
ones count: one for each proxy of `SVC_PROXY_HOPS`, and one more if the request comes from the edge,
which shows that by a secret. Without that anybody on the host who comes past the edge could give
himself an address.
"""
import hmac
from collections.abc import Iterable
from typing import Any

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from config.settings import Settings

# What nginx.conf sets, and what clients send of it is replaced there.
_SHOWN = "HTTP_X_SVC_EDGE"


def install(app: Flask, settings: Settings) -> None:
    """Make `remote_addr` of requests the address of the client."""
    past_the_edge = _behind(app.wsgi_app, settings.proxy_hops)
    from_the_edge = _behind(app.wsgi_app, settings.proxy_hops + 1)
    secret = settings.edge_secret.encode()

    def choose(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        shown = environ.pop(_SHOWN, "").encode("latin-1")
        known = bool(secret) and hmac.compare_digest(shown, secret)
        return (from_the_edge if known else past_the_edge)(environ, start_response)

    app.wsgi_app = choose  # type: ignore[method-assign]


def _behind(wsgi_app: Any, hops: int) -> Any:
    if hops == 0:
        return wsgi_app
    return ProxyFix(wsgi_app, x_for=hops, x_proto=0, x_host=0, x_port=0, x_prefix=0)
