"""The form of the file that SVC_LLM_CONFIG names: fields, types and bounds. Its meaning is in
`services/llm/configured/config_file.py`."""
import re
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from services.camel_case import camel_case

_MESSAGES = {
    "required": "is missing", "null": "may not be null", "invalid": "has the wrong type",
    "invalid_mapping_type": "has the wrong type", "type": "has the wrong type",
    "unknown": "is no field of it", "too_large": "is too large", "special": "is no number",
}
_NAME = validate.Regexp(r"[a-z0-9][a-z0-9_.-]{0,63}\Z", re.ASCII,
                        error="must be 1 to 64 of a-z, 0-9, _ . -")
_HEADER = validate.Regexp(r"[A-Za-z0-9-]{1,64}\Z", re.ASCII, error="is no name of a header")
_MODEL = validate.Length(1, 256, error="must have 1 to 256 characters")


def _url(text: str) -> str:
    """A base URL as `Upstream.url` has it: one without a path gets `/v1`."""
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.scheme in ("http", "https")
        _ = parts.port
    except ValueError:
        is_whole = False
    if not is_whole or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValidationError(
            "must be http(s)://host/path without user, password, query and fragment")
    return text.rstrip("/") if parts.path.strip("/") else text.rstrip("/") + "/v1"


class _Url(fields.String):
    def _deserialize(self, value: Any, *args: Any, **options: Any) -> Any:
        return _url(super()._deserialize(value, *args, **options))


class _Whole(fields.Integer):
    """A whole number that is written as one."""

    def __init__(self, low: int, high: int, **options: Any) -> None:
        bounds = validate.Range(low, high, error=f"must be {low} to {high}")
        super().__init__(strict=True, validate=bounds, **options)

    def _deserialize(self, value: Any, *args: Any, **options: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError("must be a whole number")
        return super()._deserialize(value, *args, **options)


class _Number(fields.Field[Decimal]):
    """A number with at most six decimals, exact."""

    def __init__(self, low: int, high: int, **options: Any) -> None:
        bounds = validate.Range(low, high, error=f"must be {low} to {high}")
        super().__init__(validate=bounds, **options)

    def _deserialize(self, value: Any, *args: Any, **options: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise ValidationError("must be a number")
        exact = Decimal(value)
        if not exact.is_finite() or abs(exact) >= 10**12 or exact != round(exact, 6):
            raise ValidationError("must be a number with at most six decimals")
        return exact


class _Seconds(_Number):
    def _deserialize(self, value: Any, *args: Any, **options: Any) -> Any:
        return float(super()._deserialize(value, *args, **options))


class _Part(Schema):
    """Base: an unknown field is refused, `camelCase` outside is `snake_case` inside."""

    error_messages = {"unknown": "is no field of it", "type": "must be an object"}

    class Meta:
        unknown = RAISE

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        field_obj.data_key = camel_case(field_name)
        field_obj.error_messages.update(_MESSAGES)


class UpstreamSchema(_Part):
    """A provider."""

    name = fields.String(required=True, validate=_NAME)
    kind = fields.String(required=True, validate=validate.OneOf(
        ("openai", "anthropic"), error="must be openai or anthropic"))
    url = _Url(required=True)
    key = fields.String()
    key_file = fields.String()
    key_header = fields.String(validate=_HEADER)
    connect_s = _Seconds(1, 60, load_default=5.0)
    silence_s = _Seconds(1, 3600, load_default=600.0)


class TargetSchema(_Part):
    """Where a model is; without `model` it has the same name there."""

    upstream = fields.String(required=True)
    model = fields.String(load_default="", validate=validate.Length(max=256, error="is too long"))


class PriceSchema(_Part):
    """US dollars per million tokens."""

    input = _Number(0, 100_000, required=True)
    cached_input = _Number(0, 100_000, required=True)
    cache_write = _Number(0, 100_000, required=True)
    output = _Number(0, 100_000, required=True)


class LimitSchema(_Part):
    """What an owner may use in a day; null is no limit."""

    requests = _Whole(0, 10**9, allow_none=True)
    tokens = _Whole(0, 10**12, allow_none=True)
    usd = _Number(0, 10**6, allow_none=True)


class LimitsSchema(_Part):
    """Limits by whom they hold for."""

    default = fields.Nested(LimitSchema, load_default=dict)
    plans = fields.Dict(fields.String(), fields.Nested(LimitSchema), load_default=dict)
    owners = fields.Dict(fields.String(), fields.Nested(LimitSchema), load_default=dict)


class FallOverSchema(_Part):
    """When a call goes on to its next target."""

    statuses = fields.List(_Whole(400, 599))
    rest_s = _Seconds(0, 3600)
    tries = _Whole(1, 10)


class ConfigSchema(_Part):
    """The whole file."""

    upstreams = fields.List(fields.Nested(UpstreamSchema), required=True, validate=validate.Length(
        1, 100, error="must name at least one"))
    models = fields.Dict(
        fields.String(validate=_MODEL),
        fields.List(fields.Nested(TargetSchema), validate=validate.Length(
            1, 10, error="must name 1 to 10 targets")), load_default=dict)
    default_model = fields.String(load_default="")
    prefixes = fields.Dict(fields.String(validate=_MODEL), fields.String())
    prices = fields.Dict(fields.String(validate=_MODEL), fields.Nested(PriceSchema),
                         load_default=dict)
    limits = fields.Nested(LimitsSchema,
                           load_default=lambda: LimitsSchema().load({}))
    fall_over = fields.Nested(FallOverSchema, load_default=dict)
    reserve_output_tokens = _Whole(0, 1_000_000, load_default=4096)
