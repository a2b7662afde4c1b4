"""Body of an API key's creation."""
from marshmallow import ValidationError, validates

from app.schemas.fields import Body, Moment, Text
from services.accounts.api_keys import NAME_MAX


class ApiKeyBody(Body):
    """Contract, API-key management."""

    name = Text(high=NAME_MAX, required=True)
    expires_at = Moment(data_key="expiresAt", load_default=None)

    @validates("name")
    def _not_blank(self, value: str, **_: str) -> None:
        if not value.strip():
            raise ValidationError("must not be blank")
