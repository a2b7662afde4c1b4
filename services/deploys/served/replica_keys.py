"""Decides who may use the object store from inside a guest, and where: one sandbox one prefix, that
of the database it replicates.

1. The secret is made from the id of its key and a key of the box (`SVC_GUEST_SECRET`), so none is
stored. 2. A prefix has at most one key, the last that was issued: two guests never replicate into
one. 3. A key counts only where its sandbox lives: asked from its own address, on its node. A copy
of the sandbox has the secret and another address. 4. It ends with its sandbox, which may use it
until it is stopped, to bring its last rows; not for ever, whatever it and its node do.
"""
import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models import deploys
from models.database import connection, database, now
from models.ids import new_id
from models.states import OPEN_STATES, OperationKind, SandboxStatus
from services.errors import Forbidden, Unavailable
from services.guests.address_holder import OWNER, OWNER_JOIN, OWNER_VALUES, find_holder
from services.guests.box_keys import keys_of_box

# The name that guests have for the bucket, whatever the operator calls it.
BUCKET = "replicas"
_PURPOSE = b"relay:"
_ITS_KEY = "LEFT JOIN relay_keys k ON k.sandbox_id = s.id AND k.key_id = %s"


@dataclass(frozen=True)
class ReplicaKey:
    """What a guest needs to replicate: `prefix` ends with a slash and is all that it reaches."""

    key_id: str
    secret: str = field(repr=False)
    bucket: str
    prefix: str


@dataclass(frozen=True)
class Grant:
    """A key that is asked with: what its secret may be, and what it opens. Several secrets, while
    `SVC_GUEST_SECRET` changes. `owner_id`: whose share of the places its requests take."""

    sandbox_id: str
    owner_id: str
    prefix: str
    secrets: tuple[str, ...] = field(repr=False)


# Longer than a node waits for the last rows of a guest that it stops.
_STOPPING_MOST_S = 60.0
_REVOKE_ENDED = """
DELETE FROM relay_keys k USING sandboxes s WHERE s.id = k.sandbox_id AND (
    s.status = %s OR EXISTS (
        SELECT 1 FROM operations o WHERE o.sandbox_id = s.id AND o.kind = %s AND o.state IN %s
        AND o.created_at < %s))
"""


def issue(settings: Settings, sandbox_id: str, prefix: str) -> ReplicaKey:
    """The key of a sandbox for `prefix`, the same each time. It takes the place of a key for
    another prefix, and of another sandbox's for this one. Raises SettingsError."""
    if not prefix.endswith("/"):
        raise ValueError("a prefix ends with a slash")
    row = deploys.RelayKey
    with connection(), database.atomic():
        same = (row.sandbox_id == sandbox_id) & (row.prefix == prefix)
        row.delete().where(((row.sandbox_id == sandbox_id) | (row.prefix == prefix))
                           & ~same).execute()
        row.insert(key_id=new_id("svc"), sandbox_id=sandbox_id,
                   prefix=prefix).on_conflict_ignore().execute()
        key_id = row.select(row.key_id).where(same).scalar()
    if key_id is None:
        raise Unavailable("Another sandbox was given this prefix in the same moment.")
    return ReplicaKey(key_id, _secret(keys_of_box(settings)[0], key_id), BUCKET, prefix)


def revoke(sandbox_id: str) -> None:
    """Take a sandbox's key away, in the current transaction if there is one."""
    with connection():
        deploys.RelayKey.delete().where(deploys.RelayKey.sandbox_id == sandbox_id).execute()


def revoke_ended() -> None:
    """Take away the keys of sandboxes that are stopped, or that were to be and have had their
    time."""
    with connection():
        before = now() - timedelta(seconds=_STOPPING_MOST_S)
        database.execute_sql(_REVOKE_ENDED, (SandboxStatus.STOPPED.value, OperationKind.STOP.value,
                                             tuple(state.value for state in OPEN_STATES), before))


def due_query(moment: Any) -> Any:
    """The keys that `revoke_ended` looks at: all that there are."""
    return deploys.RelayKey.select()


def has_key(sandbox_id: str) -> bool:
    """True for a sandbox that replicates."""
    with connection():
        return bool(deploys.RelayKey.select().where(
            deploys.RelayKey.sandbox_id == sandbox_id).exists())


def find_grant(settings: Settings, source_address: str, key_id: str) -> Grant:
    """What a key opens that is asked with from an address of this node.

    Raises Forbidden; Unavailable from an address that nobody has yet.
    """
    holder = find_holder(settings, source_address, f"s.id, {OWNER}, k.prefix",
                         f"{_ITS_KEY} {OWNER_JOIN}", key_id, *OWNER_VALUES)
    if holder is None or holder[2] is None:
        raise Forbidden("This key is not for this sandbox.")
    sandbox_id, owner_id, prefix = holder
    return Grant(sandbox_id, owner_id, prefix,
                 tuple(_secret(key, key_id) for key in keys_of_box(settings)))


def _secret(key: bytes, key_id: str) -> str:
    return hmac.new(key, _PURPOSE + key_id.encode(), hashlib.sha256).hexdigest()
