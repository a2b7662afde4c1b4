"""What a node asks about the captures it has taken: which of them it still needs, and what a boot
is made from.

A transient capture carries the fork of a live sandbox. It is removed as soon as no operation needs
it.
"""
from collections.abc import Iterable
from dataclasses import dataclass

from models.database import connection
from models.operations import Operation
from models.snapshots import Snapshot
from models.states import OPEN_STATES, SnapshotKind, SnapshotState

_WITH_FILES = (SnapshotState.PENDING, SnapshotState.READY, SnapshotState.DELETING)


@dataclass(frozen=True)
class StoredDirectory:
    """The snapshot of a project directory: where it is in the store, and what its tar must be."""

    id: str
    cwd: str
    archive_key: str
    rootfs_sha: str
    size_bytes: int


def find_directory(snapshot_id: str | None) -> StoredDirectory | None:
    """The snapshot, if it is one of a project directory only."""
    with connection():
        row = Snapshot.get_or_none(
            (Snapshot.id == snapshot_id) & (Snapshot.kind == SnapshotKind.FILES_ONLY))
    if row is None:
        return None
    return StoredDirectory(row.id, row.cwd, row.archive_key, row.rootfs_sha, row.size_bytes)


def is_transient(snapshot_id: str) -> bool:
    """True for a capture that carries the fork of a live sandbox; the row must exist."""
    with connection():
        return bool(Snapshot.get_by_id(snapshot_id).transient)


def transient_removed(snapshot_id: str) -> None:
    """The files of a transient capture are gone; other snapshots are left as they are."""
    with connection():
        Snapshot.update(state=SnapshotState.DELETED, env={}).where(
            (Snapshot.id == snapshot_id) & Snapshot.transient).execute()


def list_needed(node_id: str) -> set[str]:
    """Ids of the snapshots whose files the node must keep: those that are not at their end, and of
    the transient ones those that an operation under way needs."""
    in_use = Operation.select(Operation.snapshot_id).where(
        Operation.state.in_(OPEN_STATES) & Operation.snapshot_id.is_null(False))
    with connection():
        rows = Snapshot.select(Snapshot.id).where(
            (Snapshot.node_id == node_id)
            & Snapshot.state.in_(_WITH_FILES)
            & (~Snapshot.transient | Snapshot.id.in_(in_use))
        )
        return {row.id for row in rows}


def list_failed_archives(node_id: str, among: Iterable[str]) -> list[str]:
    """Those of the ids `among` whose directory this node should have archived, and did not."""
    ids = list(among)
    if not ids:
        return []
    with connection():
        rows = Snapshot.select(Snapshot.id).where(
            Snapshot.id.in_(ids)
            & (Snapshot.node_id == node_id)
            & (Snapshot.kind == SnapshotKind.FILES_ONLY)
            & (Snapshot.state == SnapshotState.FAILED)
        )
        return [row.id for row in rows]
