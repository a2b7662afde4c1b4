"""Decides which captured disks a node still has to upload to the object store.

An upload is announced to the node until it is done. After a failure it is tried again later.
"""
from datetime import timedelta
from typing import Any

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import OutboxMessage
from models.snapshots import Snapshot
from models.states import SnapshotState
from services.events import record
from services.operations import outbox
from services.protocols import Deps

JOB = "node.snapshot.upload"
# An upload that was announced this long ago (s) and is not done is announced again; a big one may
# still be under way, and then the node, which uploads one at a time, finds nothing left to do.
_ANNOUNCE_AGAIN_S = 300
# Pauses before the next try after a failure (s), each twice the one before.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5, 300
_BATCH = 50


def announce(snapshot: Snapshot) -> OutboxMessage:
    """Write the message that tells the snapshot's node to upload it, and when to say so again."""
    again = now() + timedelta(seconds=_ANNOUNCE_AGAIN_S)
    Snapshot.update(upload_due_at=again).where(Snapshot.id == snapshot.id).execute()
    return outbox.add(f"node.{snapshot.node_id}.bulk", JOB, {"snapshot_id": snapshot.id})


def announce_due(deps: Deps) -> int:
    """Announce the uploads that are due and not done; returns how many."""
    with connection():
        with database.atomic():
            due = (
                Snapshot.select()
                .where(
                    (Snapshot.state == SnapshotState.READY)
                    & ~Snapshot.uploaded_to_store
                    & (Snapshot.upload_due_at <= now())
                )
                .order_by(Snapshot.upload_due_at)
                .limit(_BATCH)
                .for_update(UNLOCKED_ROWS)
            )
            messages = [announce(snapshot) for snapshot in due]
        outbox.flush(deps.queue, messages)
    return len(messages)


def is_due_on(node_id: str, snapshot_id: str) -> bool:
    """True if this node is to upload the snapshot."""
    with connection():
        return bool(Snapshot.select().where(
            _wanted(snapshot_id) & (Snapshot.node_id == node_id)).exists())


def done(snapshot_id: str, size_bytes: int) -> None:
    """The disk is in the store, `size_bytes` large; row and event in one transaction. A snapshot
    that is being deleted by now stays so."""
    values = {
        "uploaded_to_store": True, "tarball_size_bytes": size_bytes, "upload_due_at": None,
        "upload_error": None
    }
    with connection(), database.atomic():
        if Snapshot.update(**values).where(_wanted(snapshot_id)).execute():
            record.snapshot_uploaded(snapshot_id)


def failed(snapshot_id: str, error: str, *, for_good: bool = False) -> None:
    """Try again after a pause that grows; `for_good` never again. `error` is for operators."""
    row = Snapshot.get_by_id(snapshot_id)
    again = None if for_good else now() + timedelta(seconds=pause_s(row.upload_attempts))
    values = {
        "upload_due_at": again, "upload_attempts": row.upload_attempts + 1, "upload_error": error
    }
    Snapshot.update(**values).where(_wanted(snapshot_id)).execute()


def pause_s(failures_before: int) -> float:
    """Seconds until an upload is tried again that has failed once more. Pure."""
    return min(_FIRST_PAUSE_S * 2 ** min(failures_before, 10), _LONGEST_PAUSE_S)


def _wanted(snapshot_id: str) -> Any:
    return (
        (Snapshot.id == snapshot_id)
        & (Snapshot.state == SnapshotState.READY)
        & ~Snapshot.uploaded_to_store
    )


def make_due(node_id: str) -> None:
    """Have every open upload of this node announced again now, because its bulk lane has just
    started and forgotten what it was told. What was given up stays so."""
    Snapshot.update(upload_due_at=now()).where(
        (Snapshot.node_id == node_id)
        & (Snapshot.state == SnapshotState.READY)
        & ~Snapshot.uploaded_to_store
        & Snapshot.upload_due_at.is_null(False)
    ).execute()
