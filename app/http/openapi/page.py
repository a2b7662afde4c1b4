"""The document as one page of HTML: no script, no request to anywhere, one style sheet allowed by
its hash."""
import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from app.schemas.fields import INT32

Json = dict[str, Any]
_STYLE = files(__package__).joinpath("page.css").read_text("utf-8")
_TEMPLATE = files(__package__).joinpath("page.html").read_text("utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_LIMITS = (("minimum", "from {}"), ("maximum", "to {}"), ("minLength", "at least {} characters"),
           ("maxLength", "at most {} characters"), ("maxItems", "at most {} items"),
           ("maxProperties", "at most {}"), ("pattern", "matching {}"))
_SHOWN_PATTERN = 30


def render(document: Json) -> str:
    """The page of `document`."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                              lstrip_blocks=True)
    environment.filters["code"] = mark_code
    return environment.from_string(_TEMPLATE).render(
        document=document, reader=DocumentReader(document), style=Markup(_STYLE))


def mark_code(text: str) -> Markup:
    """A sentence of ours: `code` in backticks becomes code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False)))


class DocumentReader:
    """What the template asks about a document."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def operations(self, tag: str) -> list[tuple[str, str, Json]]:
        """Method, path and operation of everything under `tag`."""
        return [(method.upper(), path, operation)
                for path, methods in self._document["paths"].items()
                for method, operation in methods.items()
                if tag in operation["tags"]]

    def resolve(self, node: Json) -> Json:
        """`node`, or what it refers to."""
        while "$ref" in node:
            found: Json = self._document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            node = found
        return node

    def fields(self, schema: Json) -> list[tuple[str, str, str, bool]]:
        """Name, kind, sentence of each field of an object or of a list of objects, and whether it
        has to be there."""
        schema = self.resolve(schema)
        schema = self.resolve(schema.get("items", schema))
        # What holds for every field of a request is said at the top of the page.
        spare = " or null" if schema.get("additionalProperties") is False else ""
        return [(name, self.kind(field).replace(spare, ""), field.get("description", ""),
                 name in schema.get("required", ()))
                for name, field in schema.get("properties", {}).items()]

    def kind(self, schema: Json) -> str:
        """A schema in a few words, such as `integer or null, from 1 to 65535`."""
        if "$ref" in schema:
            return str(schema["$ref"].rsplit("/", 1)[-1])
        if "const" in schema:
            return f"always {json.dumps(schema['const'])}"
        kinds = schema.get("type", "any value")
        words = [f"list of {self.kind(schema['items'])}" if kind == "array" else kind
                 for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        text = " or ".join(map(json.dumps, schema["enum"]) if "enum" in schema else words)
        limits = [sentence.format(schema[name]) for name, sentence in _LIMITS
                  if name in schema and _is_informative(name, schema[name])]
        default = [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
        return ", ".join([text, *limits, *default]).replace(", to ", " to ")

    def curl(self, method: str, path: str, operation: Json) -> str:
        """A command that makes the call."""
        query = "&".join(
            f"{parameter['name']}={{{parameter['name']}}}" for parameter in operation["parameters"]
            if parameter.get("in") == "query" and parameter["required"])
        address = re.sub(r"{(\w+)}", r"<\1>", f"{path}?{query}" if query else path)
        verb = f"-X {method} " if method != "GET" else ""
        parts = [f"curl {verb}'{self._document['servers'][0]['url']}{address}'"]
        schemes = [name for entry in operation["security"] for name in entry]
        if schemes:
            # The variables that `make up` writes for these: apiKey is SVC_API_KEY.
            variable = "$SVC_" + re.sub("([A-Z])", r"_\1", schemes[0]).upper()
            parts.append("-b cookies" if schemes[0] == "session"
                         else f'-H "Authorization: Bearer {variable}"')
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            if "example" in content:
                parts += [f"-H 'Content-Type: {media}'", f"-d '{json.dumps(content['example'])}'"]
            elif media != "application/json":
                parts += [f"-H 'Content-Type: {media}'", "--data-binary @file"]
        return " \\\n  ".join(parts)


def _is_informative(name: str, value: Any) -> bool:
    """Whether a limit says something to a reader: not what holds for every number or text, nor a
    pattern too long to read."""
    if name == "pattern":
        return len(value) <= _SHOWN_PATTERN
    return value != 0 if name == "minLength" else abs(value) != INT32
