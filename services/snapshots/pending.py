"""Writes the row of a snapshot that is being captured: pending at first, then ready or failed.

All of it happens in the transactions that begin and end the capture.
"""
from typing import Any

from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotKind, SnapshotState
from services.snapshots import disk_upload


def create(source: Sandbox, snapshot_id: str, kind: SnapshotKind, *, transient: bool) -> Snapshot:
    """Write the row of a snapshot that is about to be captured; a transient one only carries a
    fork."""
    return Snapshot.create(
        id=snapshot_id,
        owner=source.owner_id,
        node_id=source.node_id,
        source_sandbox_id=source.id,
        kind=kind,
        transient=transient,
        vcpus=source.vcpus,
        mem_mb=source.mem_mb,
        cwd=source.cwd,
        env=source.env,
    )


def complete(snapshot_id: str, columns: dict[str, Any]) -> list[OutboxMessage]:
    """Set the columns that the capture found out; returns what announces the upload of its disk."""
    (taken, ) = Snapshot.update(**columns).where(
        Snapshot.id == snapshot_id).returning(Snapshot).execute()
    return [] if taken.transient or taken.uploaded_to_store else disk_upload.announce(taken.id)


def fail(snapshot_id: str, error: str) -> None:
    """The capture gave nothing: the snapshot is failed for good. One that is ready stays so."""
    Snapshot.update(state=SnapshotState.FAILED, error=error, env={}).where(
        (Snapshot.id == snapshot_id) & (Snapshot.state == SnapshotState.PENDING)
    ).execute()
