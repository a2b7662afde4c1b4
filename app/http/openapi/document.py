"""Builds the OpenAPI 3.1 document of a host from its url map and what its views declare
(`app.http.answers`)."""
import inspect
import re
from collections.abc import Iterator
from typing import Any

from flask import Flask
from werkzeug.routing import Rule

from app.http.answers import MEANINGS, Answers, Content, ListOf, answers_of, error_statuses
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
from app.http.openapi.components import Components
from app.schemas.errors import ErrorAnswer

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


PATH_PARAMETERS = {
    "key_id": "Id of an API key of yours.",
    "path": "Path of the file in the guest.",
    "sandbox_id": "Id of a sandbox of yours.",
    "slug": "Slug of a deploy.",
    "template_id": "Name of a template, or `<name>-v<version>` for one version of it.",
}


def build(app: Flask, title: str, description: str, server: str) -> Json:
    """The document of `app`; `server` is its public URL. Routes that declare nothing are left
    out."""
    components = Components()
    error = components.reference(ErrorAnswer)
    paths: Json = {}
    for rule, method, view in routes(app):
        operation = _operation(app, rule, method, view, components)
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
            "schemas": components.schemas(),
            "responses": {str(status): _error(status, error) for status in MEANINGS},
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


def _operation(app: Flask, rule: Rule, method: str, view: Any,
               components: Components) -> Json:
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
            str(status): {"description": "Done.", **_content(content, components)}
            for status, content in sorted(declared.successes.items())
        },
    }
    if declared.query is not None:
        operation["parameters"] += components.query(declared.query)
    if declared.body is not None:
        operation["requestBody"] = _request_body(declared, components)
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
        "in": "path", "name": name, "required": True, "description": PATH_PARAMETERS[name],
        "schema": {"type": "string", "minLength": 1}
    } for name in re.findall(r"<(?:[^:>]*:)?(\w+)>", rule.rule)]


def _headers(view: Any) -> list[Json]:
    declared = answers_of(view) or Answers()
    wanted = [("X-Svc-Node", 421 in declared.errors),
              ("X-On-Behalf-Of", SERVICE in accepted_by(view))]
    return [{"$ref": f"#/components/parameters/{name}"} for name, is_taken in wanted if is_taken]


def _request_body(declared: Answers, components: Components) -> Json:
    if isinstance(declared.body, str):
        schema: Json = {"type": "string", "format": "binary"}
        return {"required": True, "content": {declared.body: {"schema": schema}}}
    item = declared.body.item if isinstance(declared.body, ListOf) else declared.body
    assert item is not None
    schema, required = components.reference(item), any(f.required for f in item().fields.values())
    if isinstance(declared.body, ListOf):
        schema, required = {"type": "array", "items": schema, "maxItems": declared.body.most}, True
    content: Json = {"schema": schema}
    if declared.example is not None:
        content["example"] = declared.example
    return {"required": required, "content": {"application/json": content}}


def _content(content: Content, components: Components) -> Json:
    """The `content` of a response."""
    if isinstance(content, type):
        return {"content": {"application/json": {"schema": components.reference(content)}}}
    return {"content": {content: {"schema": {"type": "string"}}}} if content else {}


def _error(status: int, schema: Json) -> Json:
    content = {"application/json": {"schema": schema}}
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
