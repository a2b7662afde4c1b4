"""Bodies and answers of the identity host."""
from app.schemas import answers
from app.schemas.answers import Answer, whole
from app.schemas.fields import Body, Text
from services.accounts.passwords import LENGTH_MAX


class LoginBody(Body):
    """Who wants to sign in."""

    email = Text("E-mail address of the account.", high=254, required=True)
    password = Text("Password of the account.", high=LENGTH_MAX, required=True)


class TokenBody(Body):
    """For which app a user token is wanted (contract, Identity host endpoints)."""

    app_id = Text("The app that the token is for.", high=128, required=True)


class LogoutBody(Body):
    """Logout takes no fields."""


class RevokeBody(Body):
    """Which service token to revoke (our choice: the contract does not show this body)."""

    jti = Text("Id of the service token.", high=128, required=True)


class AccountAnswer(Answer):
    """Who has signed in."""

    id = answers.Text()
    email = answers.Text()
    plan = answers.Text()


class TokenAnswer(Answer):
    """A user token."""

    token = answers.Text(read="text")
    expires_at = answers.Count("Milliseconds since 1970.",
                               show=lambda moment: int(moment.timestamp() * 1000))


class KeySetAnswer(Answer):
    """A JSON Web Key Set (RFC 7517)."""

    keys = answers.Shown(openapi={"type": "array", "items": {"type": "object"}}, read=whole)


class RevokedTokensAnswer(Answer):
    """Service tokens that were revoked before their end."""

    jtis = answers.Shown(openapi={"type": "array", "items": {"type": "string"}}, read=whole)


class ServiceTokenAnswer(Answer):
    """What is known of a service token."""

    jti = answers.Text()
    subject = answers.Text()
    app_id = answers.Text()
    issued_at = answers.Time()
    expires_at = answers.Time()
    revoked_at = answers.Time(null=True)


class ServiceTokenRecordAnswer(Answer):
    """One service token."""

    service_token = answers.Inner(ServiceTokenAnswer, read=whole)
