"""Bodies, queries and answers as JSON Schema: marshmallow schemas become components of a
document."""
import inspect
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.common import resolve_schema_cls
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow import Schema, fields

from app.schemas.answers import Answer, Inner
from app.schemas.fields import Body

Json = dict[str, Any]


class Components:
    """The schemas of one document; a schema is written when it is first referred to."""

    def __init__(self) -> None:
        plugin = MarshmallowPlugin(schema_name_resolver=_name)
        self._spec = APISpec(title="", version="", openapi_version="3.1.0", plugins=[plugin])
        # There since the plugin met its document; `Any`: some of its methods are untyped.
        self._converter: Any = getattr(plugin, "converter")
        for add in (_own_schema, _null_is_absent, _no_pointless_default):
            self._converter.add_attribute_function(add)

    def reference(self, schema: type[Schema]) -> Json:
        """A reference to the schema of a JSON body or answer."""
        reference: Json = self._converter.resolve_nested_schema(schema)
        return reference

    def query(self, schema: type[Schema]) -> list[Json]:
        """The parameters of a query."""
        parameters: list[Json] = self._converter.schema2parameters(schema(), location="query")
        for parameter in parameters:
            _without_null(parameter["schema"])  # a query knows no null
        return parameters

    def schemas(self) -> Json:
        """Every schema that was referred to, by name."""
        schemas: Json = self._spec.to_dict().get("components", {}).get("schemas", {})
        for key, name in self._converter.refs.items():
            if issubclass(key[0], Answer):
                schemas[name]["description"] = " ".join((inspect.getdoc(key[0]) or "").split())
        return dict(sorted(schemas.items()))


def _name(schema: Any) -> str:
    kind: Any = resolve_schema_cls(schema)
    return str(kind.__name__).removesuffix("Answer")


def _own_schema(self: Any, field: fields.Field, **_: Any) -> Json:
    """What our own field types say of themselves; another answer is a reference."""
    if isinstance(field, Inner):
        inner: Json = self.resolve_nested_schema(field.answer)
        return {"type": "array", "items": inner} if field.many else inner
    return dict(getattr(field, "openapi", {}))


def _null_is_absent(self: OpenAPIConverter, field: fields.Field, *, ret: Json, **_: Any) -> Json:
    """`Body` drops nulls, so every field of one that may be left out may be null, too."""
    if not isinstance(field.parent, Body) or field.required or "type" not in ret:
        return {}
    _without_null(ret)  # apispec has it where null is the default
    return {"type": [ret["type"], "null"]
            } | ({"enum": [*ret["enum"], None]} if "enum" in ret else {})


def _no_pointless_default(self: OpenAPIConverter, field: fields.Field, *, ret: Json,
                          **_: Any) -> Json:
    if "default" in ret and ret["default"] in (None, "", (), {}):
        del ret["default"]  # these only say that the field may be left out
    return {}


def _without_null(schema: Json) -> None:
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
    if "enum" in schema:
        schema["enum"] = [word for word in schema["enum"] if word is not None]
