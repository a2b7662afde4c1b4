"""`GET /openapi.json` and `GET /docs`, the same on every host, each about itself."""
import json

from flask import Blueprint, Flask, Response, current_app, request
from marshmallow import INCLUDE

from app.http.credentials import PUBLIC
from app.http.openapi import document, page
from app.http.route import route
from app.schemas import answers
from app.schemas.answers import Answer

routes = Blueprint("openapi", __name__)
_KEY = "svc-openapi"
_CACHED_S = 300


class OpenApiAnswer(Answer):
    """An OpenAPI document."""

    class Meta:
        unknown = INCLUDE

    openapi = answers.constant("3.1.0")
    info = answers.Shown(openapi={"type": "object"})
    paths = answers.Shown(openapi={"type": "object"})


def install(app: Flask, *, title: str, description: str, server: str) -> None:
    """Write the document and the page of `app`; goes after the last of its routes is registered."""
    app.register_blueprint(routes)
    described = document.build(app, title, description, server)
    app.extensions[_KEY] = {
        "application/json": json.dumps(described, indent=1).encode(),
        "text/html": page.render(described).encode()
    }


def _answer(mimetype: str) -> Response:
    response = Response(current_app.extensions[_KEY][mimetype], mimetype=mimetype)
    response.headers["Cache-Control"] = f"public, max-age={_CACHED_S}"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.add_etag()
    return response.make_conditional(request)  # type: ignore[return-value]


@route(routes, "GET /openapi.json", accepts=(PUBLIC,), answers=OpenApiAnswer, also={304: None})
def describe() -> Response:
    """This document."""
    return _answer("application/json")


@route(routes, "GET /docs", accepts=(PUBLIC,), answers="text/html", also={304: None})
def read() -> Response:
    """The same to read, without scripts and without anything from elsewhere."""
    response = _answer("text/html")
    response.headers["Content-Security-Policy"] = page.POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
