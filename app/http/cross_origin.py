"""Which pages of other origins a browser lets use a host: those of `SVC_BROWSER_ORIGINS`, by CORS
answers.

A preflight of such a page is answered before credentials are looked at, since a browser sends none
with it. Nothing is said to pages of any other origin, and their preflights are refused like any
call without a credential.
"""
import re

from flask import Flask, Response, request

from app.http.preferences import APPLIED
from app.http.preferences import HEADER as PREFER
from app.http.request_ids import HEADER as REQUEST_ID
from config.settings import Settings

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_TAKEN = ("Authorization", "Content-Type", PREFER, "X-Svc-Node")
_SHOWN = (REQUEST_ID, "Retry-After", APPLIED)
_PREFLIGHT_LASTS_S = 600


def install(app: Flask, settings: Settings, *, cookies: bool = False) -> None:
    """Answer pages of the origins in the settings; goes before `credentials.install`. With
    `cookies` they may use the session of the browser."""
    if not settings.browser_origins:
        return
    from flask_cors import CORS  # a host that no page may use does without it

    # As patterns with an end: flask-cors takes some texts for patterns, which match more than
    # themselves.
    exactly = [re.compile(re.escape(origin) + r"\Z") for origin in settings.browser_origins]
    CORS(app, origins=exactly, methods=_METHODS, allow_headers=_TAKEN, expose_headers=_SHOWN,
         max_age=_PREFLIGHT_LASTS_S, supports_credentials=cookies, allow_private_network=False)
    app.before_request(lambda: _answer_preflight(frozenset(settings.browser_origins)))


def _answer_preflight(origins: frozenset[str]) -> Response | None:
    asked = request.headers.get("Access-Control-Request-Method")
    if request.method == "OPTIONS" and asked and request.headers.get("Origin") in origins:
        return Response(status=204)
    return None
