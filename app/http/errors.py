"""One renderer for everything that goes wrong: {"error": ...} with the matching status, on every
host."""
import logging
from collections.abc import Mapping

import peewee
from flask import Flask, Response, g, jsonify, request
from werkzeug.exceptions import HTTPException

from app.schemas.answers import ErrorAnswer, answer_of
from models.database import ConnectionsTaken
from services.errors import ServiceError, Unauthenticated, UpgradeRequired

log = logging.getLogger(__name__)

_TEXT_MAX = 500

# Texts for what Flask itself refuses; the rest keep the name of their status.
_TEXTS = {
    404: "There is no such route.",
    405: "This route does not take that method.",
    413: "The body is too large.",
    414: "The address is too long.",
}

# What the contract's Errors and docs/api.md say of each status.
MEANINGS: Mapping[int, str] = {
    400: "The body or a parameter breaks a rule; the text names the field.",
    401: "No credential, or one that is unknown, malformed, revoked or expired.",
    402: "The plan does not include this, or the compute credit of this month is used up.",
    403: (
        "The resource is somebody else's, or the credential is of a kind that this route does not"
        " take."
    ),
    404: "There is no such resource.",
    409: "The state does not allow this, or the idempotency key was used with another request.",
    410: "The sandbox is stopped, for good.",
    413: "The body has more bytes than the route takes.",
    414: "The address is longer than 8190 bytes.",
    415: "The body is not declared as `application/json`.",
    421: "The node that `X-Svc-Node` names does not hold the resource.",
    426: "This is a WebSocket route, version 13; see docs/shell.md.",
    429: "Too many requests of this kind; `Retry-After` says when there is room again.",
    503: (
        "No capacity, or something the service depends on does not answer; trying again later may"
        " work."
    ),
}


def install(app: Flask) -> None:
    """Render every error of `app`, foreseen or not, in the one shape."""
    app.register_error_handler(ServiceError, _foreseen)
    app.register_error_handler(HTTPException, _refused_by_flask)
    app.register_error_handler(ConnectionsTaken, _busy)
    app.register_error_handler(peewee.DataError, _unstorable)
    app.register_error_handler(peewee.OperationalError, _database_away)
    app.register_error_handler(peewee.InterfaceError, _database_away)
    app.register_error_handler(Exception, _unforeseen)


def render(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The error response; a text that quotes something enormous is cut."""
    shown = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
    response = jsonify(answer_of(ErrorAnswer).dump(shown))
    response.status_code = status
    response.headers.extend(dict(headers or {}))
    return response


def _foreseen(error: ServiceError) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, UpgradeRequired):
        headers |= {"Connection": "upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    return render(error.text, error.status, headers)


def _refused_by_flask(error: HTTPException) -> Response:
    status = error.code or 500
    kept = {
        name: value
        for name, value in error.get_headers()
        if name in ("Allow", "Location", "Retry-After")
    }
    return render(_TEXTS.get(status, error.name), status, kept)


def _busy(error: ConnectionsTaken) -> Response:
    log.warning("database connections used up", extra={"request": g.get("request_id")})
    return render("Too many requests at once; try again.", 503, {"Retry-After": "1"})


def _database_away(error: Exception) -> Response:
    log.warning("database unavailable (%s)",
                type(error).__name__, extra={"request": g.get("request_id")})
    return render("The service's database is unavailable right now; try again.", 503,
                  {"Retry-After": "2"})


def _unstorable(error: peewee.DataError) -> Response:
    log.warning("value refused by the database (%s)",
                type(error).__name__, extra={"request": g.get("request_id")})
    return render("The request holds a value that cannot be stored.", 400)


def _unforeseen(error: Exception) -> Response:
    log.error("unforeseen error in %s %s", request.method, request.path, exc_info=error,
              extra={"request": g.get("request_id")})
    return render("internal error", 500)
