"""Field types stricter than marshmallow's own: a number is not a text, a text not a number, and a
boolean neither."""
import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from marshmallow import Schema, ValidationError, fields, pre_load, validate

from services.hosts.placement import AGENT_GUEST_PORT, PORTS_MAX

ENV_MAX_VARIABLES, ENV_MAX_BYTES = 256, 64 * 1024
TEXT_MAX, PATH_MAX, COMMAND_MAX = 1024, 4096, 128 * 1024
IDEMPOTENCY_KEY_MAX = 256
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:([Zz])|([+-]\d{2}:\d{2}))",
    re.ASCII)


class Body(Schema):
    """Base of the schemas: an unknown field is an error that names it; null is the same as not
    sending it."""

    @pre_load
    def _drop_nulls(self, data: Any, **_: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = {field.data_key or name for name, field in self.fields.items()}
        return {
            name: value for name, value in data.items() if value is not None or name not in known
        }


class Whole(fields.Integer):
    """A JSON number without a fraction; 60.0 is 60, "60" and true are errors."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError("must be a whole number")
        return value


class Flag(fields.Boolean):
    """true or false, nothing that looks like it."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, bool):
            raise ValidationError("must be true or false")
        return value


class Text(fields.String):
    """A string of at least `low` and at most `high` characters."""

    def __init__(self, *, low: int = 1, high: int = TEXT_MAX, **options: Any) -> None:
        super().__init__(validate=validate.Length(low, high), **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, str):
            raise ValidationError("must be a string")
        return value


class Numeral(fields.Integer):
    """A whole number in a query string, in decimal digits."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not re.fullmatch(r"\d{1,9}", value, re.ASCII):
            raise ValidationError("must be a whole number")
        return int(value)


class Port(Whole):
    """A TCP port of the guest that may be exposed; the agent's own is not one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(validate=validate.Range(1, 65535), **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        port = super()._deserialize(value, attr, data, **options)
        if port == AGENT_GUEST_PORT:
            raise ValidationError(f"port {AGENT_GUEST_PORT} is reserved for the guest agent")
        return port


class Ports(fields.List[int]):
    """Distinct guest ports, as a tuple."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Port(), validate=[validate.Length(max=PORTS_MAX), _distinct], **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError("must be a list of port numbers")
        return tuple(super()._deserialize(value[: PORTS_MAX + 1], attr, data, **options))


def _distinct(ports: tuple[int, ...]) -> None:
    if len(set(ports)) != len(ports):
        raise ValidationError("a port may be named once only")


class Environment(fields.Dict):
    """Environment variables: names without `=`, string values, limited in number and size."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not isinstance(value, dict):
            raise ValidationError("must be an object of strings")
        if len(value) > ENV_MAX_VARIABLES:
            raise ValidationError(f"at most {ENV_MAX_VARIABLES} variables")
        for name, text in value.items():
            if not name or "=" in name:
                raise ValidationError("a variable's name must not be empty or contain =")
            if not isinstance(text, str):
                raise ValidationError(f"the value of {name[:80]} must be a string")
        if sum(len(name.encode()) + len(text.encode())
               for name, text in value.items()) > ENV_MAX_BYTES:
            raise ValidationError(f"at most {ENV_MAX_BYTES} bytes in all")
        return value


class Base64(fields.Field[bytes]):
    """Bytes in standard base64."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> bytes:
        if not isinstance(value, str):
            raise ValidationError("must be a base64 string")
        try:
            if len(value) % 4:  # older Pythons overlook too much padding
                raise ValueError
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValidationError("is not valid base64") from error


class Moment(fields.Field[datetime]):
    """An RFC 3339 timestamp with its offset, as an aware datetime in UTC."""

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
