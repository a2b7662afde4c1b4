"""Signed tokens: short-lived ones of users, year-long ones of services; minted by the identity host, verified
everywhere.

Which key and which algorithm verify a token is decided by the `kid` and our own configuration, never by what the
token says its algorithm is.
"""
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol
from uuid import uuid4

import jwt

from config.settings import Settings
from models.base import connection, now
from models.users import ServiceToken, User
from services.errors import NotFound, Unauthenticated


class Audience(str, enum.Enum):
    """Whom a token is for (contract, Authentication): the owner-scoped surface, or services among themselves."""

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


class VerificationKeys(Protocol):
    """Where public keys come from."""

    def find(self, kid: str) -> VerificationKey | None:
        """The key of this id, or None."""


@dataclass(frozen=True)
class Claims:
    """What a verified token says: for USER, `subject` is a user's id; for SERVICE, `svc:<name>`."""

    audience: Audience
    subject: str
    app_id: str
    jti: str


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
    """A token of the service `name`, remembered by its `jti` so that it can be revoked."""
    token = _mint(settings, key, Audience.SERVICE, f"svc:{name}", app_id, settings.service_token_s)
    with connection():
        ServiceToken.create(jti=token.jti, subject=f"svc:{name}", app_id=app_id, expires_at=token.expires_at)
    return token


def _mint(settings: Settings, key: SigningKey, audience: Audience, subject: str, app_id: str, lifetime_s: int) -> Token:
    issued_at = now()
    # The claim holds whole seconds; what we report must not be later than what is checked.
    expires_at = datetime.fromtimestamp(int((issued_at + timedelta(seconds=lifetime_s)).timestamp()), timezone.utc)
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
    return Token(jwt.encode(claims, key.private, key.algorithm, headers={"kid": key.kid}), jti, expires_at)


def verify(settings: Settings, keys: VerificationKeys, text: str) -> Claims:
    """What a token says, if it is ours, in time and not revoked; raises Unauthenticated."""
    claims = _decode(settings, keys, text)
    audience, subject, jti = claims["aud"], claims["sub"], claims["jti"]
    if not all(isinstance(claim, str) and claim.isprintable() for claim in (audience, subject, jti)):
        raise Unauthenticated("The token is not valid.")
    verified = Claims(Audience(audience), subject, str(claims.get("appId", "")), jti)
    if verified.audience is Audience.SERVICE:
        _check_standing(verified.jti)
    return verified


def _decode(settings: Settings, keys: VerificationKeys, text: str) -> Mapping[str, Any]:
    try:
        kid = jwt.get_unverified_header(text).get("kid")
        key = keys.find(kid) if isinstance(kid, str) else None
        if key is None or key.algorithm not in settings.jwt_algorithms:
            raise Unauthenticated("The token is not signed by a key of this service.")
        return jwt.decode(
            text,
            key.public,
            algorithms=[key.algorithm],
            audience=[audience.value for audience in Audience],
            issuer=settings.auth_url,
            leeway=2,
            options={"require": ["iss", "aud", "sub", "iat", "exp", "jti"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated("The token has expired.") from error
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise Unauthenticated("The token is not valid.") from error


def _check_standing(jti: str) -> None:
    with connection():
        row = ServiceToken.get_or_none(ServiceToken.jti == jti)
    if row is None or row.revoked_at is not None:
        raise Unauthenticated("The token was revoked.")


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
            ServiceToken.revoked_at.is_null(False) & (ServiceToken.expires_at > now())
        )
        return [row.jti for row in rows.order_by(ServiceToken.jti)]
