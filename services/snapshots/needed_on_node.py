"""What a node asks about the captures it has taken: which of them it still needs, and what a boot
is made from.

A transient capture carries forks of a live sandbox that were asked for at once. It is removed as
soon as no operation needs it.
"""
from collections.abc import Iterable
from dataclasses import dataclass

import peewee

from models.database import connection
from models.deploys import DeployRun
from models.operations import Operation
from models.row import Statement
from models.snapshots import Snapshot
from models.states import OPEN_RUN_STATES, OPEN_STATES, SnapshotKind, SnapshotState
from services.operations.claims import Claim

_WITH_FILES = (SnapshotState.PENDING, SnapshotState.READY, SnapshotState.DELETING)
_NEEDING = Statement(
    Operation,
    lambda snapshot_id: Operation.select(Operation.id).where(
        Operation.state.in_(OPEN_STATES) & (Operation.snapshot_id == snapshot_id)),
)


@dataclass(frozen=True)
class StoredDirectory:
    """The snapshot of a project directory: where it is in the store, and what its tar must be."""

    id: str
    cwd: str
    archive_key: str
    rootfs_sha: str
    size_bytes: int


@dataclass(frozen=True)
class StoredDisk:
    """The disk of a snapshot of another node: `rootfs_sha` is the SHA-256 of its object in the
    store, which has `size_bytes`, and `image_key` the image that it stands on, None while it is not
    there."""

    id: str
    node_id: str
    vcpus: int
    mem_mb: int
    image_key: str | None
    rootfs_sha: str
    size_bytes: int


@dataclass(frozen=True)
class Origin:
    """What a boot is made from: the capture `captured_id`, which is on another node if it
    `is_elsewhere` and is also needed by others if it `is_shared`, or what is `packed` in the store,
    or neither."""

    captured_id: str | None = None
    packed: StoredDirectory | None = None
    is_elsewhere: bool = False
    is_shared: bool = False


def find_elsewhere(node_id: str, snapshot_id: str) -> StoredDisk | None:
    """The snapshot, if it is of a whole machine and on another node than this one."""
    with connection():
        row = Snapshot.get_or_none((Snapshot.id == snapshot_id) & (Snapshot.node_id != node_id)
                                   & (Snapshot.kind == SnapshotKind.FULL))
    if row is None:
        return None
    return StoredDisk(row.id, row.node_id, row.vcpus, row.mem_mb,
                      row.image_key if row.uploaded_to_store else None, row.rootfs_sha,
                      row.tarball_size_bytes)


def find_origin(claimed: Claim) -> Origin:
    """What the boot of a claim is made from."""
    if claimed.snapshot_id is None:
        return Origin()
    with connection():
        row = Snapshot.get_by_id(claimed.snapshot_id)
        if row.kind == SnapshotKind.FILES_ONLY:
            return Origin(packed=StoredDirectory(row.id, row.cwd, row.archive_key, row.rootfs_sha,
                                                 row.size_bytes))
        is_shared = row.transient and any(other.id != claimed.operation_id
                                          for other in _NEEDING.all(row.id))
    return Origin(row.id, is_elsewhere=row.node_id != claimed.node_id, is_shared=is_shared)


def is_transient(snapshot_id: str) -> bool:
    """True for a capture that carries forks of a live sandbox; the row must exist."""
    with connection():
        return bool(Snapshot.get_by_id(snapshot_id).transient)


def is_used_up(snapshot_id: str) -> bool:
    """True for a transient capture that no operation under way needs."""
    with connection():
        return bool(Snapshot.get_by_id(snapshot_id).transient) and not _NEEDING.all(snapshot_id)


def transient_removed(snapshot_id: str) -> None:
    """The files of a transient capture are gone; other snapshots are left as they are."""
    with connection():
        Snapshot.update(state=SnapshotState.DELETED, env={}).where(
            (Snapshot.id == snapshot_id) & Snapshot.transient).execute()


def list_needed(node_id: str) -> set[str]:
    """Ids of the snapshots whose files the node must keep: those that are not at their end, of the
    transient ones those that an operation under way needs, and of other nodes' those that a boot or
    a deploy here is made from."""
    with connection():
        rows = Snapshot.select(Snapshot.id).where(
            (Snapshot.node_id == node_id)
            & Snapshot.state.in_(_WITH_FILES)
            & (~Snapshot.transient | Snapshot.id.in_(_in_use()))
        )
        built_here = DeployRun.select(DeployRun.snapshot_id).where(
            (DeployRun.node_id == node_id)
            & DeployRun.state.in_(OPEN_RUN_STATES))
        booting_here = _in_use().where(Operation.node_id == node_id)
        return {row.id for row in rows} | {
            row.snapshot_id for row in (*built_here, *booting_here)}


def list_used_up(node_id: str) -> set[str]:
    """Ids of the transient captures of the node that no operation needs and that are not said to be
    removed: whoever was to do it has died, perhaps in the middle of it."""
    with connection():
        return {row.id for row in Snapshot.select(Snapshot.id).where(
            (Snapshot.node_id == node_id) & Snapshot.state.in_(_WITH_FILES) & Snapshot.transient
            & Snapshot.id.not_in(_in_use()))}


def list_known(among: Iterable[str]) -> set[str]:
    """Those of the ids `among` that have a row."""
    ids = list(among)
    if not ids:
        return set()
    with connection():
        return {row.id for row in Snapshot.select(Snapshot.id).where(Snapshot.id.in_(ids))}


def _in_use() -> peewee.ModelSelect:
    """The snapshots that an operation under way needs."""
    return Operation.select(Operation.snapshot_id).where(
        Operation.state.in_(OPEN_STATES) & Operation.snapshot_id.is_null(False))


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
