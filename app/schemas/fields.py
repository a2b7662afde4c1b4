"""Field types stricter than marshmallow's own: a number is not a text, a text not a number, and a
boolean neither."""
import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from marshmallow import Schema, ValidationError, fields, pre_load, validate

from guest.agent.protocol import AGENT_PORT
from services.camel_case import camel_case
from services.hosts import guest_environment
from services.hosts.sandbox_ports import PORTS_MAX

TEXT_MAX, PATH_MAX = 1024, 4096
# Bytes: Linux takes no longer argument, and counts the zero at its end.
COMMAND_MAX = 128 * 1024 - 1
IDEMPOTENCY_KEY_MAX = 256
INT32 = 2**31 - 1
# The largest number of a body, see `app.http.bodies.reading`: every reader of JSON has it exactly.
LARGEST = 2**53 - 1
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:([Zz])|([+-]\d{2}:\d{2}))",
    re.ASCII)


class CamelCase(Schema):
    """Names every field for the outside as the contract does: `node_id` is `nodeId` there."""

    def on_bind_field(self, field_name: str, field_obj: fields.Field) -> None:
        """Give the field its outer name, unless it names one itself."""
        if field_obj.data_key is None:
            field_obj.data_key = camel_case(field_name)


class Body(CamelCase):
    """Base of the bodies and queries: an unknown field is an error that names it; null is the same
    as not sending it."""

    error_messages = {"type": "must be an object"}

    @pre_load
    def _drop_nulls(self, data: Any, **_: Any) -> Any:
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        known = {field.data_key or name for name, field in self.fields.items()}
        return {
            name: value for name, value in data.items() if value is not None or name not in known
        }


class Described(fields.Field[Any]):
    """A field that begins with a sentence about itself, which the OpenAPI document shows.

    `openapi` is what its JSON Schema has beyond what apispec knows of its marshmallow type.
    """

    openapi: Mapping[str, Any] = {}

    def __init__(self, about: str = "", **options: Any) -> None:
        super().__init__(metadata={"description": about} if about else {}, **options)


class Whole(Described, fields.Integer):
    """A JSON number without a fraction; 60.0 is 60, "60" and true are errors."""

    def __init__(self, about: str = "", *, low: int = -INT32, high: int = INT32,
                 **options: Any) -> None:
        super().__init__(about, validate=validate.Range(low, high), **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError("must be a whole number")
        return value


class ShapeNumber(Described, fields.Float):
    """Any JSON number, 2.0 as 2: whether it is one of a machine's is for the table of machines to
    say."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValidationError("must be a number")
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Flag(Described, fields.Boolean):
    """true or false, nothing that looks like it."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, bool):
            raise ValidationError("must be true or false")
        return value


class Text(Described, fields.String):
    """A string of at least `low` and at most `high` characters."""

    def __init__(self, about: str = "", *, low: int = 1, high: int = TEXT_MAX,
                 **options: Any) -> None:
        super().__init__(about, validate=validate.Length(low, high), **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, str):
            raise ValidationError("must be a string")
        return value


class Command(Text):
    """A line for a shell, or an argument; `low` is its least length."""

    def __init__(self, about: str = "", **options: Any) -> None:
        super().__init__(about, high=COMMAND_MAX, **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        line = super()._deserialize(value, attr, data, **options)
        if len(line.encode("utf-8", "surrogatepass")) > COMMAND_MAX:
            raise ValidationError(
                f"must have at most {COMMAND_MAX} bytes; write a file and run that")
        return line


class Word(Described, fields.String):
    """One of some words."""

    def __init__(self, about: str, words: Iterable[str], **options: Any) -> None:
        super().__init__(about, validate=validate.OneOf(list(words)), **options)


class Numeral(Described, fields.Integer):
    """A whole number in a query string, in so many decimal `digits` at most."""

    digits = 9

    def __init__(self, about: str = "", *, low: int = 0, high: int | None = 999_999_999,
                 **options: Any) -> None:
        super().__init__(about, validate=validate.Range(low, high), **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not re.fullmatch(rf"\d{{1,{self.digits}}}", value, re.ASCII):
            raise ValidationError(f"must be a whole number of at most {self.digits} digits")
        return int(value)


class Most(Numeral):
    """How many of something: more than `most`, however large the number, counts as that."""

    digits = 40

    def __init__(self, about: str, most: int, **options: Any) -> None:
        super().__init__(f"{about}; more than {most} counts as {most}.", low=1, high=None,
                         **options)
        self.most = most

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        return min(super()._deserialize(value, attr, data, **options), self.most)


class Port(Whole):
    """A TCP port of the guest that may be exposed; the agent's own is not one."""

    openapi = {"not": {"const": AGENT_PORT}}

    def __init__(self, about: str = "", **options: Any) -> None:
        super().__init__(about, low=1, high=65535, **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        port = super()._deserialize(value, attr, data, **options)
        if port == AGENT_PORT:
            raise ValidationError(f"port {AGENT_PORT} is reserved for the guest agent")
        return port


class Ports(Described, fields.List):
    """Distinct guest ports to expose, as a tuple; none unless given."""

    openapi = {"uniqueItems": True}

    def __init__(self) -> None:
        super().__init__(
            f"Ports of the guest to expose; {AGENT_PORT} is the guest agent's.",
            cls_or_instance=Port(), validate=[validate.Length(max=PORTS_MAX), _distinct],
            load_default=())

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError("must be a list of port numbers")
        return tuple(super()._deserialize(value[: PORTS_MAX + 1], attr, data, **options))


def _distinct(ports: tuple[int, ...]) -> None:
    if len(set(ports)) != len(ports):
        raise ValidationError("a port may be named once only")


class Environment(Described, fields.Dict):
    """Environment variables: names without `=`, string values, limited in number and size; none
    unless given."""

    openapi = {
        "maxProperties": guest_environment.MAX_VARIABLES,
        "propertyNames": {"minLength": 1, "pattern": "^[^=]*$"},
        "additionalProperties": {"type": "string"},
    }

    def __init__(self) -> None:
        super().__init__(
            f"Environment variables; at most {guest_environment.MAX_BYTES // 1024} KiB in all.",
            load_default=dict)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, dict):
            raise ValidationError("must be an object of strings")
        for name, text in value.items():
            if not name or "=" in name:
                raise ValidationError("a variable's name must not be empty or contain =")
            if not isinstance(text, str):
                raise ValidationError(f"the value of {name[:80]} must be a string")
        excess = guest_environment.find_excess(value)
        if excess is not None:
            raise ValidationError(excess)
        return value


class Base64(Described, fields.Field[bytes]):
    """Bytes in standard base64."""

    openapi = {
        "type": "string", "contentEncoding": "base64",
        "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
    }

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> bytes:
        if not isinstance(value, str):
            raise ValidationError("must be a base64 string")
        try:
            if len(value) % 4:  # older Pythons overlook too much padding
                raise ValueError
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValidationError("is not valid base64") from error


class Moment(Described, fields.Field[datetime]):
    """An RFC 3339 timestamp with its offset, as an aware datetime in UTC."""

    openapi = {"type": "string", "format": "date-time"}

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> datetime:
        match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValidationError("must be an RFC 3339 timestamp such as 2030-01-31T12:00:00Z")
        day, clock, fraction, zulu, offset = match.groups()
        text = f"{day}T{clock}.{(fraction or '0')[:6]:0<6}{'+00:00' if zulu else offset}"
        try:
            return datetime.fromisoformat(text).astimezone(timezone.utc)
        except (ValueError, OverflowError) as error:
            raise ValidationError("is not a possible time") from error
