"""What every request gets, on every host: an id to find it in the logs by, and answers that no
cache keeps."""
from uuid import uuid4

from flask import Flask, Response, g, request

from services.errors import NotFound

HEADER = "X-Request-Id"


def install(app: Flask) -> None:
    """Number the requests of `app`; goes before everything else that looks at them."""
    app.before_request(_number)
    app.after_request(_finish)
    app.json.sort_keys = False  # type: ignore[attr-defined]


def _number() -> None:
    g.request_id = uuid4().hex
    if "\0" in request.path:
        raise NotFound("There is no such route.")


def _finish(response: Response) -> Response:
    response.headers[HEADER] = g.get("request_id", "")
    response.headers.setdefault("Cache-Control", "no-store")
    return response
