"""Builds the OpenAPI 3.1 document of a host from its url map and what its views declare
(`app.http.answers`)."""
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from flask import Flask
from werkzeug.routing import Rule

from app import shapes
from app.http.answers import MEANINGS, Answers, Content, answers_of, error_statuses
from app.http.credentials import (
    ADMIN,
    API_KEY,
    SERVICE,
    SESSION,
    SESSION_COOKIE,
    USER_JWT,
    Credential,
    accepted_by,
)
from app.http.openapi.requests import RequestSchemas
from app.http.openapi.words import describe

Json = dict[str, Any]
VERSION = "1.0"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SCHEMES: dict[Credential, tuple[str, Json]] = {
    API_KEY: ("apiKey", {
        "type": "http", "scheme": "bearer", "bearerFormat": "svc_sk_...",
        "description": "An API key, from `POST /v1/api-keys`; shown once."
    }),
    USER_JWT: ("userToken", {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "A user token, from `POST /token` of the identity host; 15 minutes."
    }),
    SERVICE: ("serviceToken", {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "A service token, made by an operator; lasts a year."
    }),
    ADMIN: ("adminToken", {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "An administrator's token, made by an operator."
    }),
    SESSION: ("session", {
        "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
        "description": "The cookie that `POST /login` sets; over TLS named `__Host-svc_session`."
    }),
}
HEADERS: dict[int, dict[str, Json]] = {
    401: {
        "WWW-Authenticate": {
            "description": "The kind of credential to send.", "schema": {"type": "string"}
        }
    },
    429: {
        "Retry-After": {
            "description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}
        }
    },
    503: {
        "Retry-After": {
            "description": "Seconds to wait, where we can tell.",
            "schema": {"type": "integer", "minimum": 0}
        }
    },
}
COMMON: dict[str, Json] = {
    "X-Svc-Node": {
        "in": "header", "name": "X-Svc-Node", "required": False,
        "schema": {"type": "string", "maxLength": 256},
        "description": "Pins the call to this node; 421 if it does not hold what the call is about."
    },
    "X-On-Behalf-Of": {
        "in": "header", "name": "X-On-Behalf-Of", "required": False, "schema": {"type": "string"},
        "description": "With a service token only: id of the user whom the service acts for."
    },
}


def build(app: Flask, title: str, description: str, server: str) -> Json:
    """The document of `app`; `server` is its public URL. Routes that declare nothing are left
    out."""
    requests, shown = RequestSchemas(), _Shown()
    paths: Json = {}
    for rule, method, view in routes(app):
        operation = _operation(app, rule, method, view, requests, shown)
        paths.setdefault(path_of(rule), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": description},
        "servers": [{"url": server}],
        "tags": [
            {"name": name, "description": first_paragraph(_module(app, name))}
            for name in _tags(paths)
        ],
        "paths": paths,
        "components": {
            "schemas": {**requests.components(), **shown.components(shapes.ERROR)},
            "responses": {str(status): _error(status) for status in MEANINGS},
            "parameters": {
                name: common
                for name, common in COMMON.items()
                if f"parameters/{name}" in str(paths)
            },
            "securitySchemes": {
                name: scheme for name, scheme in SCHEMES.values() if f"'{name}': []" in str(paths)
            },
        },
    }


def routes(app: Flask) -> Iterator[tuple[Rule, str, Any]]:
    """Every rule, method and view of `app` that declares what it answers, in the order of
    registration."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        if answers_of(view) is not None:
            for method in METHODS:
                if method in (rule.methods or ()):
                    yield rule, method, view


def path_of(rule: Rule) -> str:
    """The rule as OpenAPI writes it."""
    return re.sub(r"<(?:\w+(?:\([^)]*\))?:)?(\w+)>", r"{\1}", rule.rule)


def first_paragraph(thing: Any) -> str:
    """What the docstring of `thing` says first, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


class _Shown:
    """Collects the shapes that a document refers to."""

    def __init__(self) -> None:
        self._wanted: list[shapes.Shape] = []

    def content(self, content: Content) -> Json:
        """The `content` of a response."""
        if isinstance(content, shapes.Shape):
            self._wanted.append(content)
            return {"content": {"application/json": {"schema": shapes.ref(content)}}}
        return {"content": {content: {"schema": {"type": "string"}}}} if content else {}

    def components(self, *more: shapes.Shape) -> Json:
        """Every shape asked for and what these refer to, by name."""
        known = {
            shape.name: shape for shape in vars(shapes).values() if isinstance(shape, shapes.Shape)
        }
        found: Json = {}
        waiting = [*self._wanted, *more]
        while waiting:
            shape = waiting.pop()
            if shape.name not in found:
                found[shape.name] = shape.schema
                inner = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(shape.schema))
                waiting += [known[name] for name in inner]
        return dict(sorted(found.items()))


def _operation(app: Flask, rule: Rule, method: str, view: Any, requests: RequestSchemas,
               shown: _Shown) -> Json:
    declared, resource = answers_of(view) or Answers(), rule.endpoint.split(".")[0]
    operation: Json = {
        "operationId": _operation_id(app, rule, method),
        "tags": [resource],
        "summary": first_paragraph(view),
        "parameters": [*_path_parameters(rule), *_headers(view)],
        "security": [{SCHEMES[credential][0]: []}
                     for credential in SCHEMES
                     if credential in accepted_by(view)],
        "responses": {
            str(status): {"description": "Done.", **shown.content(content)}
            for status, content in sorted(declared.successes.items())
        },
    }
    if declared.query is not None:
        operation["parameters"] += requests.query(declared.query)
    if declared.body is not None:
        operation["requestBody"] = _request_body(declared, requests)
    for status in error_statuses(rule.rule, view):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return operation


def _operation_id(app: Flask, rule: Rule, method: str) -> str:
    """The endpoint's name; where an endpoint has several rules or methods, what tells them apart
    comes with it."""
    name = rule.endpoint.replace(".", "_")
    others = [other for other in app.url_map.iter_rules(rule.endpoint)]
    if len(others) > 1:
        name = f"{name.split('_')[0]}_{re.sub(r'[^a-z]+', '_', rule.rule.rsplit('/', 1)[-1])}"
    several = len((rule.methods or set()) & set(METHODS)) > 1
    return f"{name}_{method.lower()}" if several else name


def _path_parameters(rule: Rule) -> list[Json]:
    return [{
        "in": "path", "name": name, "required": True, "description": describe("", name),
        "schema": {"type": "string", "minLength": 1}
    } for name in re.findall(r"<(?:[^:>]*:)?(\w+)>", rule.rule)]


def _headers(view: Any) -> list[Json]:
    declared = answers_of(view) or Answers()
    wanted = [("X-Svc-Node", 421 in declared.errors),
              ("X-On-Behalf-Of", SERVICE in accepted_by(view))]
    return [{"$ref": f"#/components/parameters/{name}"} for name, is_taken in wanted if is_taken]


def _request_body(declared: Answers, requests: RequestSchemas) -> Json:
    if isinstance(declared.body, str):
        return {
            "required": True,
            "content": {declared.body: {"schema": {"type": "string", "format": "binary"}}}
        }
    assert declared.body is not None
    schema = requests.body(declared.body)
    content: Json = {"schema": schema}
    if declared.example is not None:
        content["example"] = declared.example
    written = requests.components().get(
        schema.get("$ref", "").rsplit("/", 1)[-1], {"required": True})
    return {"required": bool(written.get("required")), "content": {"application/json": content}}


def _error(status: int) -> Json:
    content = {"application/json": {"schema": shapes.ref(shapes.ERROR)}}
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": MEANINGS[status], "content": content, **headers}


def _tags(paths: Json) -> list[str]:
    return list(
        dict.fromkeys(
            tag for methods in paths.values() for way in methods.values() for tag in way["tags"]
        )
    )


def _module(app: Flask, tag: str) -> Any:
    views = (view for endpoint, view in app.view_functions.items() if endpoint.split(".")[0] == tag)
    return inspect.getmodule(next(views))
