"""Snapshots: captures of a sandbox, or of its project directory, that outlive it."""
from datetime import timedelta

from models.database import connection, database, new_id
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, OperationState, SnapshotKind, SnapshotState
from models.users import User
from services.errors import Conflict, Forbidden, NotFound, Unavailable
from services.operations import idempotency, outbox
from services.operations.begin import begin, lock_sandbox
from services.operations.waits import wait_until
from services.protocols import Deps
from services.sandboxes import create
from services.sandboxes.lifecycle import check_booted, still_busy
from services.sandboxes.views import SnapshotView, snapshot_view
from services.snapshots import pending
from services.templates.lookup import keep_snapshot

_OPERATIONS = {
    SnapshotKind.FULL: OperationKind.SNAPSHOT, SnapshotKind.FILES_ONLY: OperationKind.ARCHIVE
}


def take(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    *,
    kind: SnapshotKind = SnapshotKind.FULL,
    idempotency_key: str | None = None,
    pinned_node: str | None = None,
) -> SnapshotView:
    """Capture a sandbox, which stays what it is; returns once the snapshot is durable: on its node,
    or in the store.

    A full one is made of a running or hibernated sandbox, a `files_only` one of a running one,
    which works on meanwhile. The same key for the same sandbox returns the original snapshot, even
    when the sandbox is gone. Raises Conflict, Unavailable.
    """
    create.get_owned(owner, sandbox_id, pinned_node=pinned_node)
    route = f"sandboxes.snapshot:{sandbox_id}"

    def attempt() -> str | None:
        with database.atomic() as transaction:
            sandbox = lock_sandbox(sandbox_id)
            assert sandbox is not None
            snapshot_id = new_id("snap")
            if idempotency_key:
                known = idempotency.reserve(
                    owner.id,
                    route,
                    idempotency_key,
                    body_hash="" if kind is SnapshotKind.FULL else kind.value,
                    resource_id=snapshot_id,
                    lifetime=timedelta(hours=deps.settings.idempotency_hours),
                )
                if not known.first:
                    return known.resource_id
            if sandbox.task is not None and sandbox.task != OperationKind.STOP:
                check_booted(sandbox, _OPERATIONS[kind])
                # The key must not stay reserved for a capture that was not begun.
                transaction.rollback()
                return None
            _, messages = begin_capture(deps, sandbox, snapshot_id, kind=kind)
        outbox.flush(deps.queue, messages)
        return snapshot_id

    snapshot_id = wait_until(sandbox_id, attempt, deps.settings.operation_wait_s)
    if snapshot_id is None:
        raise still_busy(sandbox_id)
    settings = deps.settings
    wait_s = settings.operation_wait_s if kind is SnapshotKind.FULL else settings.archive_wait_s
    return _await_snapshot(sandbox_id, snapshot_id, route, wait_s)


def _await_snapshot(sandbox_id: str, snapshot_id: str, route: str, wait_s: float) -> SnapshotView:
    def probe() -> Snapshot | None:
        return Snapshot.get_or_none((Snapshot.id == snapshot_id)
                                    & (Snapshot.state != SnapshotState.PENDING))

    row = wait_until(sandbox_id, probe, wait_s)
    if row is None:
        raise Unavailable(
            f"Snapshot {snapshot_id} is still being taken; that goes on. Ask again with the same"
            " idempotencyKey.",
            retry_after_s=10,
        )
    if row.state == SnapshotState.FAILED:
        with connection():
            idempotency.release(route, snapshot_id)
            deleted = Operation.select().where((Operation.snapshot_id == snapshot_id)
                                               & (Operation.state == OperationState.SUPERSEDED))
            if deleted.exists():
                raise Conflict(row.error or "The sandbox was deleted meanwhile.")
        raise Unavailable(row.error or "The snapshot could not be captured.")
    return snapshot_view(row)


def begin_capture(
    deps: Deps,
    sandbox: Sandbox,
    snapshot_id: str,
    *,
    kind: SnapshotKind = SnapshotKind.FULL,
    transient: bool = False,
) -> tuple[Operation, list[OutboxMessage]]:
    """Write the row of a snapshot and begin its capture, in the current transaction, with the
    sandbox row locked."""
    pending.create(sandbox, snapshot_id, kind, transient=transient)
    return begin(deps.settings, sandbox, _OPERATIONS[kind], snapshot_id=snapshot_id)


def list_of(owner: User) -> list[Snapshot]:
    """Every snapshot of an owner that is not gone, newest first; the captures that carry forks are
    not among them."""
    with connection():
        return list(
            Snapshot.select()
            .where(
                (Snapshot.owner == owner.id)
                & ~Snapshot.transient
                & (Snapshot.state != SnapshotState.DELETED)
            )
            .order_by(Snapshot.created_at.desc(), Snapshot.id)
        )


def get_owned(owner: User, snapshot_id: str) -> Snapshot:
    """The row, if `owner` owns snapshot and source sandbox, kept from being deleted until the
    current transaction ends; raises NotFound, Forbidden."""
    row = keep_snapshot(snapshot_id)
    if row is None or row.state in (SnapshotState.DELETING, SnapshotState.DELETED):
        raise NotFound(f"There is no snapshot {snapshot_id}.")
    source_owner = Sandbox.select(Sandbox.owner).where(Sandbox.id == row.source_sandbox_id).scalar()
    if row.owner_id != owner.id or source_owner != owner.id:
        raise Forbidden("This snapshot belongs to another account.")
    return row
