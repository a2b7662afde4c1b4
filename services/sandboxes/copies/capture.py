"""Takes snapshots: captures of a sandbox, or of its project directory, that outlive it."""
from models.ids import new_id
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, OperationState, SnapshotKind, SnapshotState
from services.errors import Conflict, Unavailable
from services.hosts import placement
from services.operations import idempotency
from services.operations.begin import begin, check_start
from services.operations.open_limit import check_open
from services.operations.row_changes import wait_until
from services.protocols import Deps
from services.sandboxes import find, quotas
from services.sandboxes.caller import Caller
from services.sandboxes.requests import CaptureRequest
from services.sandboxes.waiting import attempt_when_free, check_free_to_capture
from services.snapshots import pending
from services.snapshots.views import SnapshotView, snapshot_view

_OPERATIONS = {
    SnapshotKind.FULL: OperationKind.SNAPSHOT, SnapshotKind.FILES_ONLY: OperationKind.ARCHIVE
}


def take(deps: Deps, caller: Caller, sandbox_id: str,
         request: CaptureRequest = CaptureRequest()) -> SnapshotView:
    """Capture a sandbox, which stays what it is; returns once the snapshot is durable: on its node,
    or in the store.

    A full one is made of a running or hibernated sandbox, a `files_only` one of a running one,
    which works on meanwhile. The same key for the same sandbox returns the original snapshot, even
    when the sandbox is gone. Raises Conflict, Unavailable.
    """
    find.get_owned(caller, sandbox_id)
    kind, route = request.kind, f"sandboxes.snapshot:{sandbox_id}"

    def attempt(sandbox: Sandbox) -> tuple[str, list[OutboxMessage]]:
        reserved = idempotency.reserve(
            deps.settings, caller.owner.id, route, request.idempotency_key,
            body_hash="" if kind is SnapshotKind.FULL else kind.value, resource_id=new_id("snap"))
        if not reserved.first:
            return reserved.resource_id, []
        # A busy sandbox takes the reservation back: a key must not stay reserved for a capture that
        # was not begun.
        check_free_to_capture(sandbox, _OPERATIONS[kind])
        check_start(sandbox, _OPERATIONS[kind])
        quotas.check_snapshot(deps.settings, caller.owner)
        check_open(deps.settings, sandbox)
        _, _, messages = begin_capture(deps, sandbox, reserved.resource_id, kind=kind)
        return reserved.resource_id, messages

    snapshot_id = attempt_when_free(deps, sandbox_id, attempt)
    settings = deps.settings
    wait_s = settings.operation_wait_s if kind is SnapshotKind.FULL else settings.archive_wait_s
    return _await_snapshot(sandbox_id, snapshot_id, route, wait_s)


def _await_snapshot(sandbox_id: str, snapshot_id: str, route: str, wait_s: float) -> SnapshotView:
    def probe() -> Snapshot | None:
        row: Snapshot | None = Snapshot.get_or_none((Snapshot.id == snapshot_id)
                                                    & (Snapshot.state != SnapshotState.PENDING))
        if row is None or row.state != SnapshotState.FAILED:
            return row
        idempotency.release(route, snapshot_id)
        deleted = Operation.select().where((Operation.sandbox_id == sandbox_id)
                                           & (Operation.snapshot_id == snapshot_id)
                                           & (Operation.state == OperationState.SUPERSEDED))
        if deleted.exists():
            raise Conflict(row.error or "The sandbox was deleted meanwhile.")
        raise Unavailable(row.error or "The snapshot could not be captured.")

    row = wait_until(sandbox_id, probe, wait_s, patient=True)
    if row is None:
        raise Unavailable(
            f"Snapshot {snapshot_id} is still being taken; that goes on. Ask again with the same"
            " idempotencyKey.",
            retry_after_s=10,
        )
    return snapshot_view(row)


def find_transient(sandbox: Sandbox, asked_at_seq: int) -> tuple[Snapshot, Operation] | None:
    """The capture under way, for other forks, of a sandbox whose row is locked, if it also serves a
    fork that was asked for when the sandbox's `op_seq` was `asked_at_seq`: it shows what was done
    before that. So it was begun later, or no worker has begun to work on it.
    """
    if sandbox.task != OperationKind.SNAPSHOT:
        return None
    begun = Operation.get(Operation.numbered(sandbox.id, sandbox.op_seq))
    taken = Snapshot.get_by_id(begun.snapshot_id)
    unseen = begun.op_seq > asked_at_seq or begun.epoch == 0
    return (taken, begun) if taken.transient and unseen else None


def begin_capture(
    deps: Deps,
    sandbox: Sandbox,
    snapshot_id: str,
    *,
    kind: SnapshotKind = SnapshotKind.FULL,
    transient: bool = False,
) -> tuple[Snapshot, Operation, list[OutboxMessage]]:
    """Write the row of a snapshot and begin its capture, in the current transaction, with the
    sandbox row locked. Who makes a transient one sees to it that the node has room for the fork."""
    if kind is SnapshotKind.FULL and not transient:
        placement.check_disk(sandbox.node_id)
    taken = pending.create(sandbox, snapshot_id, kind, transient=transient)
    return taken, *begin(deps.settings, sandbox, _OPERATIONS[kind], snapshot=taken)
