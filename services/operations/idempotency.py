"""Makes requests repeatable: the first one under a key reserves the resource id, every other one
is answered with it.

1. `request_hash` is taken of the validated body without the key itself. 2. `reserve` inserts the
key in the transaction that makes the resource; racers wait for that commit. 3. A replay with the
same hash gets the first resource, another hash is a Conflict. Validation errors come before step 2
and are never stored.
"""
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from models.database import connection, now
from models.operations import IdempotencyKey
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from services.errors import Conflict


@dataclass(frozen=True)
class Reservation:
    """`first` is True for the request that made the resource; `response` is what it stored, if
    anything."""

    first: bool
    resource_id: str
    response: dict[str, Any] | None = None


def request_hash(body: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a validated body."""
    return hashlib.sha256(json.dumps(body, sort_keys=True,
                                     separators=(",", ":")).encode()).hexdigest()


def reserve(settings: Settings, owner_id: str, route: str, key: str | None, *, body_hash: str,
            resource_id: str, equal_hashes: Iterable[str] = ()) -> Reservation:
    """Reserve `key` for `resource_id` in the current transaction, or find what it was first used
    for. A request without a key is always the first.

    `route` is the scope in which a key must be unique for an owner. Raises Conflict for a key used
    with another body; those with `equal_hashes` ask for the same.
    """
    if not key:
        return Reservation(True, resource_id)
    asked = IdempotencyKey.insert(
        owner_id=owner_id,
        route=route,
        key=key,
        request_hash=body_hash,
        resource_id=resource_id,
        expires_at=now() + timedelta(hours=settings.idempotency_hours),
    ).on_conflict_ignore().returning(IdempotencyKey.key)
    first = None
    while first is None:
        if list(asked.clone().execute()):
            return Reservation(True, resource_id)
        # None if the row that was in the way has been forgotten since.
        first = IdempotencyKey.get_or_none(
            (IdempotencyKey.owner_id == owner_id) & (IdempotencyKey.route == route)
            & (IdempotencyKey.key == key))
    if first.request_hash != body_hash and first.request_hash not in equal_hashes:
        raise Conflict("This idempotencyKey was already used with a different request.")
    return Reservation(False, first.resource_id, first.response)


def store_response(owner_id: str, route: str, key: str, response: dict[str, Any]) -> None:
    """Keep the first response, in the transaction that made it."""
    IdempotencyKey.update(response=response).where((IdempotencyKey.owner_id == owner_id)
                                                   & (IdempotencyKey.route == route)
                                                   & (IdempotencyKey.key == key)).execute()


def find_response(owner_id: str, route: str, key: str | None) -> dict[str, Any] | None:
    """What is kept under a key."""
    response: dict[str, Any] | None = IdempotencyKey.select(IdempotencyKey.response).where(
        (IdempotencyKey.owner_id == owner_id) & (IdempotencyKey.route == route)
        & (IdempotencyKey.key == (key or ""))).scalar()
    return response


def release(route: str, resource_id: str) -> None:
    """Forget the key of a resource that could not be made, so that the caller may try again under
    the same key."""
    IdempotencyKey.delete().where(
        (IdempotencyKey.route == route) & (IdempotencyKey.resource_id == resource_id)
    ).execute()


def forget_expired() -> int:
    """Remove the keys that are past their time and whose sandbox or snapshot is gone; returns how
    many."""
    made = IdempotencyKey.resource_id
    sandboxes = Sandbox.select().where(
        (Sandbox.id == made) & (Sandbox.status != SandboxStatus.STOPPED))
    snapshots = Snapshot.select().where(
        (Snapshot.id == made) & Snapshot.state.in_((SnapshotState.PENDING, SnapshotState.READY)))
    with connection():
        return int(
            IdempotencyKey.delete()
            .where((IdempotencyKey.expires_at < now()) & ~peewee.fn.EXISTS(sandboxes)
                   & ~peewee.fn.EXISTS(snapshots))
            .execute()
        )
