"""Request schemas as JSON Schema: what our own field types add to what apispec knows of
marshmallow's."""
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow import Schema, fields

from app.http.answers import ListOf
from app.http.openapi.words import describe
from app.schemas.addresses import TOKEN_MAX, URL_MAX, Bootstrap, GitUrl
from app.schemas.fields import (
    ENV_MAX_VARIABLES,
    Base64,
    Body,
    Environment,
    Moment,
    Numeral,
    Port,
    Ports,
    Whole,
)
from services.hosts.placement import AGENT_GUEST_PORT

Json = dict[str, Any]
_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = rf"^(?:(?:https?|ssh|git)://[A-Za-z0-9]|{_HOST}@{_HOST}:)[!-~]*$"
_BOOTSTRAP = {
    "properties": {
        "callbackUrl": {
            "type": "string", "format": "uri", "pattern": "^https?://", "maxLength": URL_MAX
        },
        "callbackToken": {"type": "string", "pattern": "^[!-~]+$", "maxLength": TOKEN_MAX},
        "readinessPort": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
    "dependentRequired": {"callbackUrl": ["callbackToken"], "callbackToken": ["callbackUrl"]},
    "additionalProperties": True,
}
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
INT32 = 2**31 - 1  # `app.http.bodies` takes no number beyond


class RequestSchemas:
    """Writes request schemas into the components of a document."""

    def __init__(self) -> None:
        self._plugin = MarshmallowPlugin(schema_name_resolver=lambda schema: schema.__name__)
        self._spec = APISpec(title="", version="", openapi_version="3.1.0", plugins=[self._plugin])
        converter: Any = self._converter  # these two of its methods are untyped
        for kind in (Base64, Moment):
            converter.map_to_openapi_type(kind, "string", None)
        converter.map_to_openapi_type(Bootstrap, "object", None)
        for add in (_own_types, _whole_range, _null_is_absent, _no_pointless_default):
            converter.add_attribute_function(add)

    @property
    def _converter(self) -> OpenAPIConverter:
        converter = self._plugin.converter
        assert converter is not None  # there since the plugin met its document
        return converter

    def body(self, declared: type[Schema] | ListOf) -> Json:
        """The schema of a JSON body."""
        if isinstance(declared, ListOf):
            return {
                "type": "array", "items": self._reference(declared.item), "maxItems": declared.most
            }
        return self._reference(declared)

    def query(self, declared: type[Schema]) -> list[Json]:
        """The parameters of a query."""
        parameters: list[Json] = self._converter.schema2parameters(declared(), location="query")
        for parameter in parameters:
            _without_null(parameter["schema"])  # a query knows no null
            parameter["description"] = describe(declared.__name__, parameter["name"])
        return parameters

    def components(self) -> Json:
        """Every schema that was asked for, by name."""
        schemas: Json = self._spec.to_dict().get("components", {}).get("schemas", {})
        return schemas

    def _reference(self, schema: type[Schema]) -> Json:
        if schema.__name__ not in self.components():
            self._spec.components.schema(schema.__name__, schema=schema)
            written = self.components()[schema.__name__]
            written["additionalProperties"] = False
            for name, field in written["properties"].items():
                field["description"] = describe(schema.__name__, name)
        return {"$ref": f"#/components/schemas/{schema.__name__}"}


def _own_types(self: OpenAPIConverter, field: fields.Field, **_: Any) -> Json:
    if isinstance(field, Port):
        return {"not": {"const": AGENT_GUEST_PORT}}
    if isinstance(field, Ports):
        return {"uniqueItems": True}
    if isinstance(field, Environment):
        return {
            "maxProperties": ENV_MAX_VARIABLES,
            "propertyNames": {"minLength": 1,
                              "pattern": "^[^=]*$"}, "additionalProperties": {"type": "string"}
        }
    if isinstance(field, GitUrl):
        return {"pattern": _REPOSITORY}
    if isinstance(field, Bootstrap):
        return _BOOTSTRAP
    if isinstance(field, Base64):
        return {"contentEncoding": "base64", "pattern": _BASE64}
    if isinstance(field, Moment):
        return {"format": "date-time"}
    return {}


def _whole_range(self: OpenAPIConverter, field: fields.Field, *, ret: Json, **_: Any) -> Json:
    if isinstance(field, Numeral):
        return {"minimum": ret.get("minimum", 0), "maximum": ret.get("maximum", 999_999_999)}
    if isinstance(field, Whole):
        return {"minimum": ret.get("minimum", -INT32), "maximum": ret.get("maximum", INT32)}
    return {}


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
