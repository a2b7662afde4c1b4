"""Holds responses to the OpenAPI document: the status is declared, and the body is the shape,
without a field more."""
import copy
import re
from functools import cached_property
from typing import Any

import httpx
import jsonschema_rs
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.http.openapi.page import DocumentReader

Json = dict[str, Any]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ERROR = "#/components/schemas/Error"


class Conformance:
    """What a host promises about itself; `check` raises AssertionError for a response that breaks
    the promise."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._rules = [(re.compile(re.sub(r"{(\w+)}", r"[^/]+", path)), path)
                       for path in document["paths"]]
        # `{path}` is the one parameter that takes slashes
        self._rules += [
            (re.compile(re.sub(r"{(\w+)}", r"[^/]+", path.removesuffix("{path}")) + "(?s:.*)"),
             path) for path in document["paths"] if path.endswith("{path}")
        ]

    def check_httpx(self, response: httpx.Response) -> None:
        """A response hook of httpx."""
        response.read()
        is_json = response.headers.get("Content-Type") == "application/json"
        body = response.json() if is_json and response.content else response.text or None
        self.check(response.request.method, response.request.url.path, response.status_code,
                   response.headers, body)

    def check(self, method: str, path: str, status: int, headers: Any, body: Any) -> None:
        """`path` has no query; `body` is the parsed JSON or None, `headers` maps names to
        values."""
        if method not in METHODS:
            return
        operation = self._find(method, path)
        said = f"{method} {path}: {status} {str(body)[:300]}"
        if operation is None:
            assert status in (400, 404, 405), f"{said} of no route"
            self._validate({"$ref": ERROR}, body, said)
            return
        declared = operation["responses"].get(str(status))
        assert declared, f"{said} is not a declared status; see app/http/route.py"
        self._check_content(DocumentReader(self._document).resolve(declared), headers, body, said)

    def _check_content(self, declared: Json, headers: Any, body: Any, said: str) -> None:
        content = declared.get("content", {})
        media = (headers.get("Content-Type") or "").split(";")[0]
        if not content:
            assert body is None, f"{said} has a body, and none is declared"
            return
        assert media in content, f"{said} is {media}, declared are {list(content)}"
        if media == "application/json":
            self._validate(content[media]["schema"], body, said)

    def _find(self, method: str, path: str) -> Json | None:
        # A rule without parameters goes first, as with Flask.
        for pattern, rule in sorted(self._rules, key=lambda entry: entry[1].count("{")):
            if pattern.fullmatch(path) and method.lower() in self._document["paths"][rule]:
                found: Json = self._document["paths"][rule][method.lower()]
                return found
        return None

    @cached_property
    def _closed(self) -> Json:
        """The components with no field allowed that is not declared: clients have to ignore these,
        tests must not."""
        components = copy.deepcopy(self._document["components"])
        for schema in components["schemas"].values():
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
        return components

    def _validate(self, schema: Json, body: Any, said: str) -> None:
        validator = jsonschema_rs.Draft202012Validator({**schema, "components": self._closed},
                                                       validate_formats=True)
        for error in validator.iter_errors(body):
            place = "/".join(str(step) for step in error.instance_path)
            raise AssertionError(f"{said} is not what app/schemas/ says: {place}: {error.message}")


class ConformingClient(FlaskClient):
    """A client of an app in this process that holds every answer to the app's own document."""

    def open(self, *args: Any, **options: Any) -> TestResponse:
        response = super().open(*args, **options)
        request = response.request
        body = response.get_json() if response.is_json and response.data else response.get_data(
            as_text=True) or None
        conformance: Conformance = self.application.extensions["conformance"]
        conformance.check(request.method, request.path, response.status_code, response.headers,
                          body)
        response.close()  # what the call held is given back, as by a server
        return response


def conforming(app: Flask) -> Flask:
    """`app`, whose test clients are conforming ones from now on."""
    app.extensions["conformance"] = Conformance(app.test_client().get("/openapi.json").get_json())
    app.test_client_class = ConformingClient
    return app
