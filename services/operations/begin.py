"""Begins lifecycle operations, and ends those that a stop supersedes.

1. With the sandbox row locked, the transition table is asked. 2. The row gets its `task` and a new
`op_seq`. 3. The operation and the outbox message are written. All of it is one transaction. Then a
worker claims the operation (`services/operations/claims.py`), and `services/operations/finish.py`
ends it. An operation that has nothing left to do on the node is claimed at once, and no message is
written (`begin_claimed`).

Locks are always taken in one order, the sandbox row before its operations, so that no two of these
wait for each other.
"""
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models.database import ROW_LOCK, now
from models.deploys import Deploy
from models.operations import Operation, OutboxMessage
from models.row import Statement
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OPEN_STATES, OWN_KINDS, Lane, OperationKind, OperationState, SandboxStatus
from services.errors import Conflict
from services.operations.announcements import announce, lane_of
from services.operations.claims import Claim, claim
from services.operations.row_changes import notify
from services.operations.transitions import TRANSITIONS, asked_for, describe

_LOCKED = Statement(
    Sandbox,
    lambda sandbox_id: Sandbox.select().where(Sandbox.id == sandbox_id).for_update(ROW_LOCK),
    prepared=True,
)


def lock_sandbox(sandbox_id: str) -> Sandbox | None:
    """The row, locked for the rest of the transaction; None if there is none."""
    locked: Sandbox | None = _LOCKED.find(sandbox_id)
    return locked


def owner_of(sandbox: Sandbox) -> str:
    """Whose the operations of a sandbox are: of a builder or a runtime, which belong to one account
    of the service's own, the owner of its app, as long as there is the app. Nobody's app is to wait
    because another's has much to do."""
    if sandbox.kind in OWN_KINDS:
        app = Deploy.get_or_none(Deploy.app_id == sandbox.app_id)
        if app is not None:
            return str(app.owner_id)
    return str(sandbox.owner_id)


def begin(
    settings: Settings,
    sandbox: Sandbox,
    kind: OperationKind,
    *,
    snapshot: Snapshot | None = None,
    after: Operation | None = None,
    from_any: bool = False,
    requested_by: str | None = None,
    readiness_port: int | None = None,
    ends_listener: bool = False,
) -> tuple[Operation, list[OutboxMessage]]:
    """Start an operation on a sandbox row that the caller has locked (or just inserted) in the
    current transaction.

    With `after`, a capture, it waits until that operation succeeds. Raises Conflict when the status
    or another operation does not allow it; `from_any` skips the status (repairs by the reconciler).
    A stop supersedes what is open first: use `services.sandboxes.outcomes.begin_stop`.
    `requested_by` is kept where it was neither the owner nor the service itself, such as
    `operator`. Of `readiness_port` and `ends_listener` see `Operation`.
    """
    check_start(sandbox, kind, from_any=from_any)
    operation = _insert(settings, sandbox, kind, snapshot=snapshot, after=after,
                        requested_by=requested_by, readiness_port=readiness_port,
                        ends_listener=ends_listener)
    return operation, [] if after else [announce(operation)]


def begin_claimed(settings: Settings, sandbox: Sandbox, kind: OperationKind, worker: str) -> Claim:
    """Start an operation that has nothing left to do on the node, already claimed by `worker`.

    The row is locked, and the caller finishes the operation in the same transaction: no message
    announces it. Raises Conflict as `begin`.
    """
    check_start(sandbox, kind)
    operation = _insert(settings, sandbox, kind, requested_by=worker)
    claimed = claim(sandbox.id, operation.op_seq, f"{sandbox.node_id}/{worker}",
                    settings.operation_lease_s)
    assert claimed is not None, "an operation of this very transaction is free"
    return claimed


def check_start(sandbox: Sandbox, kind: OperationKind, *, from_any: bool = False) -> None:
    """Raise Conflict unless `begin` would let `kind` start, by the row as it was read.

    For those who look at disk, quotas or ports before they begin: a state that does not allow the
    operation is the answer, not a lack of room for it.
    """
    if sandbox.task is not None:
        raise Conflict(
            f"The sandbox is {describe(sandbox.status, sandbox.task)}; try again when that is done."
        )
    if not from_any and SandboxStatus(sandbox.status) not in TRANSITIONS[kind].starts:
        raise Conflict(
            f"The sandbox is {sandbox.status}; {asked_for(kind)} is not possible in that state.")


def _insert(settings: Settings, sandbox: Sandbox, kind: OperationKind, *,
            snapshot: Snapshot | None = None, after: Operation | None = None,
            requested_by: str | None = None, **columns: Any) -> Operation:
    limit_s, lane = settings.boot_deadline_s, lane_of(sandbox.node_id, kind, snapshot)
    if lane is Lane.ARCHIVE:
        limit_s += settings.archive_timeout_s
    sandbox.op_seq += 1
    sandbox.task = kind.value
    Sandbox.update(op_seq=sandbox.op_seq,
                   task=sandbox.task).where(Sandbox.id == sandbox.id).execute()
    operation: Operation = Operation.create(
        sandbox_id=sandbox.id,
        op_seq=sandbox.op_seq,
        kind=kind.value,
        state=OperationState.WAITING if after else OperationState.PENDING,
        node_id=sandbox.node_id,
        owner_id=owner_of(sandbox),
        lane=lane,
        snapshot_id=snapshot.id if snapshot else None,
        after_id=after.id if after else None,
        requested_by=requested_by,
        announce_at=now() + timedelta(seconds=settings.operation_sweep_s * 2),
        deadline_at=now() + timedelta(seconds=limit_s),
        **columns,
    )
    notify(sandbox.id)
    return operation


def supersede(sandbox: Sandbox, error: str) -> list[Operation]:
    """End every open operation of a sandbox whose row is locked, so that another one can begin.

    Returns the operations that were ended. No worker can finish them any more. The caller ends what
    they had begun to make, and the operations that waited for them.
    """
    sandbox.task = None
    return list(
        Operation.update(state=OperationState.SUPERSEDED, finished_at=now(), error=error)
        .where((Operation.sandbox_id == sandbox.id) & Operation.state.in_(OPEN_STATES))
        .returning(Operation)
        .execute()
    )
