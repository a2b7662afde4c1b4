"""People, their sessions and API keys, the service tokens an operator minted, and who guesses
passwords."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import Plan


class User(Row):
    """An account that owns sandboxes."""

    id = peewee.TextField(primary_key=True)
    email = peewee.TextField(unique=True)
    password_hash = peewee.TextField()
    plan = peewee.TextField(default=Plan.FREE)
    created_at = TimeField(default=now)
    disabled_at = TimeField(null=True)

    class Meta:
        table_name = "users"


class Session(Row):
    """A signed-in browser. Only a hash of the id in the cookie is stored, so that the rows alone
    open nothing."""

    id_hash = peewee.TextField(primary_key=True)
    user = peewee.ForeignKeyField(User, column_name="user_id", index=False)
    password_print = peewee.TextField()
    created_at = TimeField(default=now)
    expires_at = TimeField()

    class Meta:
        table_name = "sessions"


class LoginThrottle(Row):
    """How far the allowance of one account or address is used up: it is whole again at
    `full_at`."""

    subject = peewee.TextField(primary_key=True)
    full_at = TimeField()

    class Meta:
        table_name = "login_throttles"


class ApiKey(Row):
    """One key of one user; only the SHA-256 of the secret is stored (contract, API keys 1)."""

    id = peewee.TextField(primary_key=True)
    owner = peewee.ForeignKeyField(User, column_name="owner_id", index=False)
    name = peewee.TextField()
    key_hash = peewee.TextField(unique=True)
    prefix = peewee.TextField()
    scopes = JsonField()
    created_at = TimeField(default=now)
    last_used_at = TimeField(null=True)
    revoked_at = TimeField(null=True)
    expires_at = TimeField(null=True)

    class Meta:
        table_name = "api_keys"


class ServiceToken(Row):
    """A service token by its `jti`; the token itself is never stored."""

    jti = peewee.TextField(primary_key=True)
    subject = peewee.TextField()
    app_id = peewee.TextField()
    kid = peewee.TextField(default="")
    issued_at = TimeField(default=now)
    expires_at = TimeField()
    revoked_at = TimeField(null=True)

    class Meta:
        table_name = "service_tokens"
