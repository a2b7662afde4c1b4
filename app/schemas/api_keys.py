"""Body of an API key's creation, and what is shown of keys."""
from marshmallow import ValidationError, validates

from app.schemas import answers
from app.schemas.answers import Answer, whole
from app.schemas.fields import Body, Moment, Text
from services.accounts.api_keys import NAME_MAX


class ApiKeyBody(Body):
    """Contract, API-key management."""

    name = Text("Name of the key, to tell it from others.", high=NAME_MAX, required=True)
    expires_at = Moment("When the key shall end by itself; in the future.", load_default=None)

    @validates("name")
    def _not_blank(self, value: str, **_: str) -> None:
        if not value.strip():
            raise ValidationError("must not be blank")


class ApiKeyAnswer(Answer):
    """What is known of an API key; never its secret."""

    id = answers.Text()
    name = answers.Text()
    prefix = answers.Text("The first 12 characters of the key.")
    scopes = answers.Shown(openapi={"type": "array", "items": {"const": "sandbox"}})
    created_at = answers.Time()
    last_used_at = answers.Time(null=True)
    revoked_at = answers.Time(null=True)
    expires_at = answers.Time(null=True)


class ApiKeyRecordAnswer(Answer):
    """One API key."""

    api_key = answers.Inner(ApiKeyAnswer, read=whole)


class ApiKeyListAnswer(Answer):
    """Every API key of the user, newest first."""

    api_keys = answers.Inner(ApiKeyAnswer, many=True, read=whole)


class NewApiKeyAnswer(Answer):
    """A new API key, with its secret for the only time."""

    key = answers.Text(read="secret")
    api_key = answers.Inner(ApiKeyAnswer, read="record")
