"""Bodies of the identity host."""
from app.schemas.fields import Body, Text
from services.accounts.users import PASSWORD_MAX


class LoginBody(Body):
    """Who wants to sign in."""

    email = Text(high=254, required=True)
    password = Text(high=PASSWORD_MAX, required=True)


class TokenBody(Body):
    """For which app a user token is wanted (contract, Identity host endpoints)."""

    app_id = Text(data_key="appId", high=128, required=True)


class LogoutBody(Body):
    """Logout takes no fields."""


class RevokeBody(Body):
    """Which service token to revoke (our choice: the contract does not show this body)."""

    jti = Text(high=128, required=True)
