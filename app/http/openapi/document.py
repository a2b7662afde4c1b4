"""Builds the OpenAPI 3.1 document of a host from its url map and what its views declare
(`app.http.route`)."""
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from flask import Flask
from werkzeug.routing import Rule

from app.http.credentials import SESSION_COOKIE
from app.http.errors import MEANINGS
from app.http.openapi.components import Components
from app.http.preferences import APPLIED, ASKED_MAX_S
from app.http.preferences import HEADER as PREFER
from app.http.route import Content, ListOf, Route, route_of
from app.schemas.answers import ErrorAnswer
from services.accounts.principals import Credential

Json = dict[str, Any]
VERSION = "1.0"


def _bearer(name: str, form: str, about: str) -> tuple[str, Json]:
    return name, {"type": "http", "scheme": "bearer", "bearerFormat": form, "description": about}


SCHEMES: dict[Credential, tuple[str, Json]] = {
    Credential.API_KEY: _bearer(
        "apiKey", "svc_sk_...", "An API key, from `POST /v1/api-keys`; shown once."),
    Credential.USER_JWT: _bearer(
        "userToken", "JWT", "A user token, from `POST /token` of the identity host; 15 minutes."),
    Credential.SERVICE: _bearer(
        "serviceToken", "JWT", "A service token, made by an operator; lasts a year."),
    Credential.ADMIN: _bearer(
        "adminToken", "JWT", "An administrator's token, made by an operator."),
    Credential.SESSION: ("session", {
        "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
        "description": "The cookie that `POST /login` sets; over TLS named `__Host-svc_session`."
    }),
}
# Of the answers with these statuses.
HEADERS: dict[int, tuple[str, str, Json]] = {
    401: ("WWW-Authenticate", "The kind of credential to send.", {"type": "string"}),
    429: ("Retry-After", "Seconds to wait.", {"type": "integer", "minimum": 0}),
    503: ("Retry-After", "Seconds to wait, where we can tell.", {"type": "integer", "minimum": 0}),
}
# Of the successes of routes that may be preferred to wait.
WAITED = {
    APPLIED: {
        "description": "`wait=N` if up to N seconds were waited for the boot, as preferred.",
        "schema": {"type": "string"}
    }
}
# Of the requests to routes that fulfil the condition.
REQUEST_HEADERS: dict[str, tuple[str, Json, Callable[[Route], bool]]] = {
    "X-Svc-Node": ("Pins the call to this node; 421 if it does not hold what the call is about.",
                   {"maxLength": 256}, lambda route: route.may_be_pinned),
    PREFER: ("`wait=N` (RFC 7240): answer once the sandbox has booted, or that has failed, after N"
             f" seconds at most, {ASKED_MAX_S} at most.", {}, lambda route: route.may_wait),
    "X-On-Behalf-Of": ("With a service token only: id of the user whom the service acts for.",
                       {}, lambda route: Credential.SERVICE in route.accepts),
}
PATH_PARAMETERS = {
    "key_id": "Id of an API key of yours.",
    "path": "Path of the file in the guest.",
    "port": "A TCP port of the guest, 1 to 65535.",
    "sandbox_id": "Id of a sandbox of yours.",
    "slug": "Slug of a deploy.",
    "snapshot_id": "Id of a snapshot of yours.",
    "template_id": "Name of a template, or `<name>-v<version>` for one version of it.",
    "variable": "Name of a variable of an app.",
}
# What they have to look like; the others are any text.
PATH_LIMITS = {
    "port": {
        "pattern": r"^([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$"
    },
    "variable": {"pattern": r"^(?!PORT$|SVC_)[A-Za-z_][A-Za-z0-9_]{0,127}$"},
}


def build(app: Flask, title: str, description: str, server: str) -> Json:
    """The document of `app`; `server` is its public URL. Routes that declare nothing are left
    out."""
    components = Components()
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
            "responses": {str(status): _error(status, components) for status in MEANINGS},
            "schemas": components.schemas(),
            "parameters": {
                name: _parameter("header", name, about, required=False, **limits)
                for name, (about, limits, _) in REQUEST_HEADERS.items()
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
        "parameters": [
            *(_parameter("path", name, PATH_PARAMETERS[name], required=True,
                         **PATH_LIMITS.get(name, {"minLength": 1}))
              for name in re.findall(r"{(\w+)}", path_of(rule))),
            *({"$ref": f"#/components/parameters/{name}"}
              for name, (*_, is_taken) in REQUEST_HEADERS.items() if is_taken(route)),
            *(components.query(route.query) if route.query is not None else ())
        ],
        "security": [{name: []} for credential, (name, _) in SCHEMES.items()
                     if credential in route.accepts],
        "responses": {
            str(status): {
                "description": "Done.", **_content(content, components),
                **({"headers": WAITED} if route.may_wait else {})
            }
            for status, content in sorted(route.successes.items())
        },
    }
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


def _parameter(place: str, name: str, about: str, *, required: bool, **limits: Any) -> Json:
    return {"in": place, "name": name, "required": required, "description": about,
            "schema": {"type": "string", **limits}}


def _request_body(route: Route, components: Components) -> Json:
    if isinstance(route.body, str):
        schema: Json = {"type": "string", "format": "binary"}
        return {"required": True, "content": {route.body: {"schema": schema}}}
    if isinstance(route.body, ListOf):
        items = components.reference(route.body.item)
        schema, required = {"type": "array", "items": items, "maxItems": route.body.most}, True
    else:
        assert route.body is not None
        schema = components.reference(route.body)
        required = any(field.required for field in route.body().fields.values())
    example = {} if route.example is None else {"example": route.example}
    return {"description": f"At most {route.body_bytes} bytes.", "required": required,
            "content": {"application/json": {"schema": schema, **example}}}


def _content(content: Content, components: Components) -> Json:
    """The `content` of a response."""
    if isinstance(content, type):
        return {"content": {"application/json": {"schema": components.reference(content)}}}
    return {"content": {content: {"schema": {"type": "string"}}}} if content else {}


def _error(status: int, components: Components) -> Json:
    error = {"description": MEANINGS[status], **_content(ErrorAnswer, components)}
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
