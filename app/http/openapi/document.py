"""Builds the OpenAPI 3.1 document of a host from its url map and what its views declare
(`app.http.route`)."""
import inspect
import re
from collections.abc import Iterator
from typing import Any

from flask import Flask
from werkzeug.routing import Rule

from app.http.credentials import (
    ADMIN,
    API_KEY,
    SERVICE,
    SESSION,
    SESSION_COOKIE,
    USER_JWT,
    Credential,
)
from app.http.errors import MEANINGS
from app.http.openapi.components import Components
from app.http.route import Content, ListOf, Route, route_of
from app.schemas.errors import ErrorAnswer

Json = dict[str, Any]
VERSION = "1.0"
SCHEMES: dict[Credential, tuple[str, Json]] = {
    credential: (name, {
        "type": "http", "scheme": "bearer", "bearerFormat": form, "description": description
    })
    for credential, name, form, description in (
        (API_KEY, "apiKey", "svc_sk_...", "An API key, from `POST /v1/api-keys`; shown once."),
        (USER_JWT, "userToken", "JWT",
         "A user token, from `POST /token` of the identity host; 15 minutes."),
        (SERVICE, "serviceToken", "JWT", "A service token, made by an operator; lasts a year."),
        (ADMIN, "adminToken", "JWT", "An administrator's token, made by an operator."),
    )
} | {
    SESSION: ("session", {
        "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
        "description": "The cookie that `POST /login` sets; over TLS named `__Host-svc_session`."
    }),
}
_WAIT: Json = {"type": "integer", "minimum": 0}
HEADERS: dict[int, tuple[str, str, Json]] = {
    401: ("WWW-Authenticate", "The kind of credential to send.", {"type": "string"}),
    429: ("Retry-After", "Seconds to wait.", _WAIT),
    503: ("Retry-After", "Seconds to wait, where we can tell.", _WAIT),
}
COMMON: dict[str, Json] = {
    name: {
        "in": "header", "name": name, "required": False, "schema": schema,
        "description": description
    }
    for name, description, schema in (
        ("X-Svc-Node",
         "Pins the call to this node; 421 if it does not hold what the call is about.",
         {"type": "string", "maxLength": 256}),
        ("X-On-Behalf-Of",
         "With a service token only: id of the user whom the service acts for.",
         {"type": "string"}),
    )
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
    for rule, method, route in routes(app):
        operation = _operation(app, rule, method, route, components)
        paths.setdefault(path_of(rule), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": description},
        "servers": [{"url": server}],
        "tags": _tags(app, paths),
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


def routes(app: Flask) -> Iterator[tuple[Rule, str, Route]]:
    """Every rule of `app` that declares a route, and its method, in the order of registration."""
    for rule in app.url_map.iter_rules():
        route = route_of(app.view_functions[rule.endpoint])
        if route is not None:
            method, = (rule.methods or set()) - {"HEAD", "OPTIONS"}
            yield rule, method, route


def path_of(rule: Rule) -> str:
    """The rule as OpenAPI writes it."""
    return re.sub(r"<(?:\w+(?:\([^)]*\))?:)?(\w+)>", r"{\1}", rule.rule)


def first_paragraph(thing: Any) -> str:
    """What the docstring of `thing` says first, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _operation(app: Flask, rule: Rule, method: str, route: Route, components: Components) -> Json:
    operation: Json = {
        "operationId": _operation_id(app, rule),
        "tags": [rule.endpoint.split(".")[0]],
        "summary": first_paragraph(app.view_functions[rule.endpoint]),
        "parameters": [*_path_parameters(rule), *_headers(route)],
        "security": [{name: []} for credential, (name, _) in SCHEMES.items()
                     if credential in route.accepts],
        "responses": {
            str(status): {"description": "Done.", **_content(content, components)}
            for status, content in sorted(route.successes.items())
        },
    }
    if route.query is not None:
        operation["parameters"] += components.query(route.query)
    if route.body is not None:
        operation["requestBody"] = _request_body(route, components)
    for status in route.error_statuses(rule.rule):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    return operation


def _operation_id(app: Flask, rule: Rule) -> str:
    """The endpoint's name; where an endpoint has several rules the last step of the path instead
    of the view's."""
    resource, _, view = rule.endpoint.partition(".")
    if len(list(app.url_map.iter_rules(rule.endpoint))) > 1:
        view = re.sub(r"[^a-z]+", "_", rule.rule.rpartition("/")[2])
    return f"{resource}_{view}"


def _path_parameters(rule: Rule) -> list[Json]:
    return [{
        "in": "path", "name": name, "required": True, "description": PATH_PARAMETERS[name],
        "schema": {"type": "string", "minLength": 1}
    } for name in re.findall(r"<(?:[^:>]*:)?(\w+)>", rule.rule)]


def _headers(route: Route) -> list[Json]:
    wanted = [("X-Svc-Node", route.may_be_pinned), ("X-On-Behalf-Of", SERVICE in route.accepts)]
    return [{"$ref": f"#/components/parameters/{name}"} for name, is_taken in wanted if is_taken]


def _request_body(route: Route, components: Components) -> Json:
    if isinstance(route.body, str):
        schema: Json = {"type": "string", "format": "binary"}
        return {"required": True, "content": {route.body: {"schema": schema}}}
    item = route.body.item if isinstance(route.body, ListOf) else route.body
    assert item is not None
    schema, required = components.reference(item), any(f.required for f in item().fields.values())
    if isinstance(route.body, ListOf):
        schema, required = {"type": "array", "items": schema, "maxItems": route.body.most}, True
    content: Json = {"schema": schema}
    if route.example is not None:
        content["example"] = route.example
    return {"required": required, "content": {"application/json": content}}


def _content(content: Content, components: Components) -> Json:
    """The `content` of a response."""
    if isinstance(content, type):
        return {"content": {"application/json": {"schema": components.reference(content)}}}
    return {"content": {content: {"schema": {"type": "string"}}}} if content else {}


def _error(status: int, schema: Json) -> Json:
    error = {"description": MEANINGS[status], "content": {"application/json": {"schema": schema}}}
    if status in HEADERS:
        name, description, kind = HEADERS[status]
        error["headers"] = {name: {"description": description, "schema": kind}}
    return error


def _tags(app: Flask, paths: Json) -> list[Json]:
    """Each resource with what the module of its routes says of it."""
    modules = {endpoint.split(".")[0]: inspect.getmodule(view)
               for endpoint, view in app.view_functions.items()}
    tags = [tag for methods in paths.values() for way in methods.values() for tag in way["tags"]]
    return [{"name": tag, "description": first_paragraph(modules[tag])}
            for tag in dict.fromkeys(tags)]
