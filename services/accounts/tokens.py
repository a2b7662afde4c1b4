"""Signed tokens: short-lived ones of users, year-long ones of services; minted by the identity
host, verified everywhere.

Which key and which algorithm verify a token is decided by the `kid` and our own configuration,
never by what the token says its algorithm is.
"""
import enum
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol
from uuid import uuid4

import jwt

from config.settings import Settings
from models.database import connection, now
from models.users import ServiceToken, User
from services.errors import InvalidRequest, NotFound, Unauthenticated

# Subjects of service tokens begin with this (contract, Service tokens 1).
SERVICE_PREFIX = "svc:"
# The service whose tokens open the administrative routes, and nothing else.
ADMIN_SUBJECT = "svc:admin"
# How far the clocks of our hosts may be apart.
LEEWAY = timedelta(seconds=2)
_SERVICE_NAME = re.compile("[a-z0-9][a-z0-9-]{0,63}")


class Audience(str, enum.Enum):
    """Whom a token is for (contract, Authentication): the owner-scoped surface, or services among
    themselves."""

    USER = "svc"
    SERVICE = "svc-infra"


@dataclass(frozen=True)
class SigningKey:
    """A private key with the id and algorithm that its tokens name."""

    kid: str
    algorithm: str
    private: Any = field(repr=False)


@dataclass(frozen=True)
class VerificationKey:
    """A public key; it verifies tokens of exactly one algorithm."""

    kid: str
    algorithm: str
    public: Any


class Authority(Protocol):
    """Whom a verifier believes: the identity host, near (its files and rows) or far (what it
    publishes)."""

    def find(self, kid: str) -> VerificationKey | None:
        """The public key of this id, or None; raises Unavailable if that cannot be told."""

    def is_revoked(self, jti: str) -> bool:
        """True if the service token of this id was revoked."""


@dataclass(frozen=True)
class Claims:
    """What a verified token says: for USER, `subject` is a user's id; for SERVICE, `svc:<name>` or
    the id of a user whom the service is given to act as."""

    audience: Audience
    subject: str
    app_id: str
    jti: str

    @property
    def is_of_user(self) -> bool:
        """True if the subject is a user's id."""
        return not self.subject.startswith(SERVICE_PREFIX)


@dataclass(frozen=True)
class Token:
    """A minted token; `text` is the secret, `expires_at` when it ends."""

    text: str = field(repr=False)
    jti: str
    expires_at: datetime


def mint_user_token(settings: Settings, key: SigningKey, user: User, app_id: str) -> Token:
    """A token that acts as `user` on the owner-scoped surface for `user_jwt_s` seconds."""
    return _mint(settings, key, Audience.USER, user.id, app_id, settings.user_jwt_s)


def mint_service_token(settings: Settings, key: SigningKey, name: str, app_id: str) -> Token:
    """A token of the service `name`, remembered by its `jti` so that it can be revoked; raises
    InvalidRequest."""
    if not _SERVICE_NAME.fullmatch(name):
        raise InvalidRequest(
            "the name of a service is 1 to 64 lower-case letters, digits and hyphens")
    return _mint_for_service(settings, key, f"{SERVICE_PREFIX}{name}", app_id)


def mint_service_token_of(settings: Settings, key: SigningKey, user: User, app_id: str) -> Token:
    """A service token that acts as `user`; remembered and revoked as that of a service."""
    return _mint_for_service(settings, key, user.id, app_id)


def _mint_for_service(settings: Settings, key: SigningKey, subject: str, app_id: str) -> Token:
    token = _mint(settings, key, Audience.SERVICE, subject, app_id, settings.service_token_s)
    with connection():
        ServiceToken.create(
            jti=token.jti, subject=subject, app_id=app_id, kid=key.kid, expires_at=token.expires_at
        )
    return token


def _mint(settings: Settings, key: SigningKey, audience: Audience, subject: str, app_id: str,
          lifetime_s: int) -> Token:
    issued_at = now()
    # The claim holds whole seconds; what we report must not be later than what is checked.
    expires_at = datetime.fromtimestamp(
        int((issued_at + timedelta(seconds=lifetime_s)).timestamp()), timezone.utc)
    jti = uuid4().hex
    claims = {
        "iss": settings.auth_url,
        "aud": audience.value,
        "sub": subject,
        "appId": app_id,
        "iat": int(issued_at.timestamp()),
        "exp": int(expires_at.timestamp()),
        "jti": jti,
    }
    return Token(jwt.encode(claims, key.private, key.algorithm, headers={"kid": key.kid}), jti,
                 expires_at)


def verify(settings: Settings, authority: Authority, text: str) -> Claims:
    """What a token says, if it is ours, in time and not revoked; raises Unauthenticated,
    Unavailable."""
    claims = _decode(settings, authority, text)
    audience, subject, jti = claims["aud"], claims["sub"], claims["jti"]
    if not all(
            isinstance(claim, str) and claim.isprintable() for claim in (audience, subject, jti)):
        raise Unauthenticated("The token is not valid.")
    verified = Claims(Audience(audience), subject, str(claims.get("appId", "")), jti)
    if verified.audience is Audience.SERVICE and authority.is_revoked(jti):
        raise Unauthenticated("The token was revoked.")
    return verified


def _decode(settings: Settings, authority: Authority, text: str) -> Mapping[str, Any]:
    try:
        kid = jwt.get_unverified_header(text).get("kid")
        key = authority.find(kid) if isinstance(kid, str) else None
        if key is None or key.algorithm not in settings.jwt_algorithms:
            raise Unauthenticated("The token is not signed by a key of this service.")
        return jwt.decode(
            text,
            key.public,
            algorithms=[key.algorithm],
            audience=[audience.value for audience in Audience],
            issuer=settings.auth_url,
            leeway=LEEWAY,
            options={"require": ["iss", "aud", "sub", "iat", "exp", "jti"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated("The token has expired.") from error
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise Unauthenticated("The token is not valid.") from error


def is_standing(jti: str) -> bool:
    """True if this service token was minted here and not revoked."""
    with connection():
        return ServiceToken.select().where((ServiceToken.jti == jti)
                                           & ServiceToken.revoked_at.is_null()).exists()


def revoke(jti: str) -> ServiceToken:
    """End a service token for good; repeating keeps the first time. Raises NotFound."""
    with connection():
        ServiceToken.update(revoked_at=now()).where(
            (ServiceToken.jti == jti) & ServiceToken.revoked_at.is_null()
        ).execute()
        row = ServiceToken.get_or_none(ServiceToken.jti == jti)
    if row is None:
        raise NotFound(f"There is no service token {jti}.")
    return row


def list_revoked() -> list[str]:
    """The `jti` of every revoked token that would still be in time; the others need no listing."""
    with connection():
        rows = ServiceToken.select(ServiceToken.jti).where(
            ServiceToken.revoked_at.is_null(False) & (ServiceToken.expires_at > now() - LEEWAY)
        )
        return [row.jti for row in rows.order_by(ServiceToken.jti)]


def list_service_tokens() -> list[ServiceToken]:
    """Every service token that was minted, newest first; the tokens themselves are not kept."""
    with connection():
        return list(ServiceToken.select().order_by(ServiceToken.issued_at.desc(), ServiceToken.jti))


def count_live_by_key() -> dict[str, int]:
    """How many service tokens of each signing key would stop working if the key were removed."""
    with connection():
        live = ServiceToken.revoked_at.is_null() & (ServiceToken.expires_at > now())
        rows = ServiceToken.select(ServiceToken.kid).where(live)
        return dict(Counter(row.kid for row in rows))
