"""API keys: made, listed and revoked by their owner, and looked up at every request (contract, API
keys)."""
import hashlib
import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from config.settings import Settings
from models.database import ROW_LOCK, connection, database, now, relaxed_transaction
from models.ids import new_id
from models.row import Lookup, PairStatement, Statement
from models.users import ApiKey, User
from services.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unauthenticated,
)

SECRET_PREFIX = "svc_sk_"
NAME_MAX = 80
SCOPES = ("sandbox",)
# So long is one listed that was revoked or has expired.
KEPT_DAYS = 90
_SHOWN = 12
_HOUR = timedelta(hours=1)
# `lastUsedAt` is for people; a write per request would cost more than the request.
_USE_RECORDED_EVERY = timedelta(minutes=1)


def _owner_of_key(key_hash: str) -> Any:
    """At every request: the owner, and beside it what decides whether the key counts."""
    return User.select(
        *User.fields_but("password_hash"),
        ApiKey.id.alias("key_id"),
        ApiKey.revoked_at.alias("key_revoked_at"),
        ApiKey.expires_at.alias("key_expires_at"),
        ApiKey.last_used_at.alias("key_last_used_at"),
    ).join(ApiKey, on=ApiKey.owner == User.id).where(ApiKey.key_hash == key_hash)


_OWNER = Statement(User, _owner_of_key, prepared=True)


@cache
def _owner_and(lookup: Lookup) -> PairStatement:
    return PairStatement(User, _owner_of_key, lookup)


@dataclass(frozen=True)
class NewKey:
    """A key that was just made; `secret` is shown once and stored nowhere."""

    secret: str
    record: ApiKey


def create(settings: Settings, owner: User, name: str,
           expires_at: datetime | None = None) -> NewKey:
    """Make a key within the owner's limits, which are exact under parallel requests: the owner's
    row is locked.

    Raises InvalidRequest if it would expire in the past, RateLimited (contract: 5 an hour),
    Conflict (10 active ones).
    """
    if expires_at is not None and expires_at <= now():
        raise InvalidRequest("expiresAt must be in the future")
    with connection(), database.atomic():
        User.select(User.id).where(User.id == owner.id).for_update(ROW_LOCK).get()
        _check_limits(settings, owner)
        return issue(owner, name, created_at=now(), expires_at=expires_at)


def issue(owner: User, name: str, *, created_at: datetime,
          expires_at: datetime | None = None) -> NewKey:
    """Write a key without asking for limits; for `create` and for operators."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    record = ApiKey.create(
        id=new_id("key"),
        owner=owner.id,
        name=name,
        key_hash=_digest(secret),
        prefix=secret[:_SHOWN],
        scopes=list(SCOPES),
        created_at=created_at,
        expires_at=expires_at,
    )
    return NewKey(secret, record)


def _check_limits(settings: Settings, owner: User) -> None:
    present = now()
    recent = [
        row.created_at
        for row in ApiKey.select(ApiKey.created_at)
        .where((ApiKey.owner == owner.id) & (ApiKey.created_at > present - _HOUR))
        .order_by(ApiKey.created_at.desc())
        .limit(settings.api_keys_per_hour)
    ]
    if len(recent) >= settings.api_keys_per_hour:
        wait_s = max(1, math.ceil((recent[-1] + _HOUR - present).total_seconds()))
        text = f"At most {settings.api_keys_per_hour} API keys may be made in an hour."
        raise RateLimited(text, retry_after_s=wait_s)
    unexpired = ApiKey.expires_at.is_null() | (ApiKey.expires_at > present)
    active = ApiKey.select().where((ApiKey.owner == owner.id) & ApiKey.revoked_at.is_null()
                                   & unexpired).count()
    if active >= settings.api_key_limit:
        raise Conflict(
            f"There are {active} active API keys, the most an account may have; revoke one first.")


def list_all(owner: User) -> list[ApiKey]:
    """Every key of the owner, revoked ones too, newest first."""
    with connection():
        rows = ApiKey.select().where(ApiKey.owner == owner.id)
        return list(rows.order_by(ApiKey.created_at.desc(), ApiKey.id.desc()))


def forget_old() -> int:
    """Remove the keys that ended KEPT_DAYS days ago or earlier; returns how many."""
    before = now() - timedelta(days=KEPT_DAYS)
    with connection():
        return int(ApiKey.delete().where(
            (ApiKey.revoked_at < before) | (ApiKey.expires_at < before)).execute())


def revoke(owner: User, key_id: str) -> ApiKey:
    """End a key for good, from the next request on; repeating keeps the first time. Raises
    NotFound, Forbidden."""
    with connection(), database.atomic():
        record = ApiKey.select().where(ApiKey.id == key_id).for_update(ROW_LOCK).get_or_none()
        if record is None:
            raise NotFound(f"There is no API key {key_id}.")
        if record.owner_id != owner.id:
            raise Forbidden("This API key belongs to another account.")
        if record.revoked_at is None:
            record.revoked_at = now()
            ApiKey.update(revoked_at=record.revoked_at).where(ApiKey.id == key_id).execute()
        return record


def authenticate(secret: str) -> User:
    """The owner of a key that is valid at this moment; raises Unauthenticated. Nothing is
    cached."""
    with connection():
        return _judged(_OWNER.find(_digest(secret)))


def authenticate_and_find(secret: str, lookup: Lookup, key: str) -> tuple[User, Any]:
    """The same, and the row that `lookup` finds for `key`, or None, whosever it is: in one
    statement, because most calls need both."""
    with connection():
        owner, found = _owner_and(lookup).find(_digest(secret), key) or (None, None)
        return _judged(owner), found


def _judged(owner: Any) -> User:
    """The owner, read with their key, if that is valid; its use is recorded."""
    present = now()
    if owner is None:
        raise Unauthenticated("Unknown API key.")
    if owner.key_revoked_at is not None:
        raise Unauthenticated("This API key was revoked.")
    if owner.key_expires_at is not None and owner.key_expires_at <= present:
        raise Unauthenticated("This API key has expired.")
    if owner.disabled_at is not None:
        raise Unauthenticated("The account of this API key is disabled.")
    if owner.key_last_used_at is None or owner.key_last_used_at < present - _USE_RECORDED_EVERY:
        _record_use(owner.key_id, present)
    found: User = owner
    return found


def _record_use(key_id: str, present: datetime) -> None:
    stale = ApiKey.last_used_at.is_null() | (ApiKey.last_used_at < present - _USE_RECORDED_EVERY)
    with relaxed_transaction():
        ApiKey.update(last_used_at=present).where((ApiKey.id == key_id) & stale).execute()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
