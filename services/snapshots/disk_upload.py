"""Decides which captured disks a node still has to upload to the object store.

An upload is announced to the node until it is done. After a failure it is tried again later. A node
uploads one at a time, and at its end announces one of those that came meanwhile (`in_turn`).
"""
from collections.abc import Collection
from typing import Any

from models.database import connection, database
from models.operations import OutboxMessage
from models.snapshots import Snapshot
from models.states import SnapshotState
from services.events import record
from services.operations.due_work import DueWork

JOB = "node.snapshot.upload"
UPLOADS = DueWork(
    model=Snapshot,
    due=Snapshot.upload_due_at,
    waiting=(Snapshot.state == SnapshotState.READY) & ~Snapshot.uploaded_to_store,
    key=(Snapshot.id,),
    job=JOB,
    payload=lambda row: {"snapshot_id": row.id},
    # A big one may still be under way then, or before this one: its node leaves it at that.
    announce_again_s=300,
    first_pause_s=5,
    longest_pause_s=300,
)


def announce(snapshot_id: str) -> list[OutboxMessage]:
    """Write the message that tells the node of a snapshot to upload it, unless it need not."""
    return UPLOADS.announce(Snapshot.id == snapshot_id)


def in_turn(node_id: str, among: Collection[str], ended: str) -> list[str]:
    """Those `among` that this node still has to upload, in their turn: `ended` was the last, so
    another owner's come first, and then the oldest. However many come, each is the first at last.
    """
    last = Snapshot.alias()
    its_owner = last.select(last.owner).where(last.id == ended)
    waiting = Snapshot.select(Snapshot.id).where(
        UPLOADS.waiting & (Snapshot.node_id == node_id) & Snapshot.upload_due_at.is_null(False)
        & Snapshot.id.in_(list(among)))
    return [row.id for row in waiting.order_by(Snapshot.owner == its_owner, Snapshot.created_at)]


def is_due_on(node_id: str, snapshot_id: str) -> bool:
    """True if this node is to upload the snapshot."""
    with connection():
        return bool(Snapshot.select().where(
            _wanted(snapshot_id) & (Snapshot.node_id == node_id)).exists())


def done(snapshot_id: str, size_bytes: int, sha: str) -> None:
    """The disk is in the store, `size_bytes` large and with this SHA-256; row and event in one
    transaction. A snapshot that is being deleted by now stays so."""
    values = {
        "uploaded_to_store": True, "tarball_size_bytes": size_bytes, "rootfs_sha": sha,
        "upload_due_at": None, "upload_error": None
    }
    with connection(), database.atomic():
        if Snapshot.update(**values).where(_wanted(snapshot_id)).execute():
            record.snapshot_uploaded(snapshot_id)


def failed(snapshot_id: str, error: str, *, for_good: bool = False) -> None:
    """Try again after a pause that grows; `for_good` never again. `error` is for operators."""
    row = Snapshot.get_by_id(snapshot_id)
    again = None if for_good else UPLOADS.next_try_at(row.upload_attempts)
    values = {
        "upload_due_at": again, "upload_attempts": row.upload_attempts + 1, "upload_error": error
    }
    Snapshot.update(**values).where(_wanted(snapshot_id)).execute()


def _wanted(snapshot_id: str) -> Any:
    return (Snapshot.id == snapshot_id) & UPLOADS.waiting
