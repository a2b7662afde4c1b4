"""Lifecycle operations: begun by a request, claimed by a worker, finished once, whoever dies in
between.

1. `begin`, with the sandbox row locked: the transition table is asked, the row gets its `task` and
   a new `op_seq`, the operation and the outbox message are written; one transaction.
2. A worker claims it and keeps its lease, see `services/operations/claims.py`. 3. `finish` under
   the epoch of the claim: a worker whose lease was taken over cannot write its result. Sweeping for
   operations nobody works on is in `services/operations/sweeps.py`.

Locks are always taken in one order, the sandbox row before its operations, so that no two of these
wait for each other.
"""
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models.database import ROW_LOCK, database, now
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import (
    CAPTURES,
    OPEN_STATES,
    OperationKind,
    OperationState,
    SandboxStatus,
    SnapshotKind,
    SnapshotState,
)
from services.errors import Conflict
from services.events import record
from services.events.types import StopReason
from services.hosts.placement import release_ports
from services.metering import counting
from services.metering.counting import Sample
from services.operations import outbox
from services.operations.claims import Claim, LeaseLost, held
from services.operations.transitions import ARCHIVE_LANE, TRANSITIONS, describe
from services.operations.waits import announce
from services.sandboxes import agent_servers
from services.snapshots import disk_upload


@dataclass(frozen=True)
class Outcome:
    """What a worker found or made: the status that is now true, columns of the sandbox and (success
    only) snapshot rows to set, for a failure `error` (for the client) and `operator_error` (for
    us), of a running sandbox what the host's counters say, and a `note` for operators."""

    ok: bool
    status: SandboxStatus
    sandbox: dict[str, Any] = field(default_factory=dict)
    snapshot: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    operator_error: str | None = None
    usage: Sample | None = None
    note: str | None = None


def job_name(kind: OperationKind) -> str:
    """Name of the job that announces an operation of this kind to its node."""
    return f"node.sandbox.{kind.value}"


def begin(
    settings: Settings,
    sandbox: Sandbox,
    kind: OperationKind,
    *,
    snapshot_id: str | None = None,
    after: Operation | None = None,
    from_any: bool = False,
    requested_by: str | None = None,
) -> tuple[Operation, list[OutboxMessage]]:
    """Start an operation on a sandbox row that the caller has locked (or just inserted) in the
    current transaction.

    With `after`, it waits until that operation succeeds. STOP supersedes whatever is open. Raises
    Conflict when the status or another operation does not allow it; `from_any` skips the status
    (repairs by the reconciler). `requested_by` is kept where it was neither the owner nor the
    service itself, such as `operator`.
    """
    transition = TRANSITIONS[kind]
    if kind is OperationKind.STOP:
        _supersede(sandbox.id)
    elif sandbox.task is not None:
        raise Conflict(
            f"The sandbox is {describe(sandbox.status, sandbox.task)}; try again when that is done."
        )
    if not from_any and SandboxStatus(sandbox.status) not in transition.starts:
        raise Conflict(
            f"The sandbox is {sandbox.status}; {kind.value} is not possible in that state.")
    limit_s = settings.boot_deadline_s
    if _lane(kind, snapshot_id) == ARCHIVE_LANE:
        limit_s += settings.archive_timeout_s
    sandbox.op_seq += 1
    sandbox.task = kind.value
    Sandbox.update(op_seq=sandbox.op_seq,
                   task=sandbox.task).where(Sandbox.id == sandbox.id).execute()
    operation = Operation.create(
        sandbox_id=sandbox.id,
        op_seq=sandbox.op_seq,
        kind=kind.value,
        state=OperationState.WAITING if after else OperationState.PENDING,
        node_id=sandbox.node_id,
        snapshot_id=snapshot_id,
        after_id=after.id if after else None,
        requested_by=requested_by,
        announce_at=now() + timedelta(seconds=settings.operation_sweep_s * 2),
        deadline_at=now() + timedelta(seconds=limit_s),
    )
    announce(sandbox.id)
    return operation, [] if after else [announcement(operation)]


def announcement(operation: Operation) -> OutboxMessage:
    """Write the message that tells the node about an operation; ids only, no secrets."""
    kind = OperationKind(operation.kind)
    return outbox.add(
        queue_of(operation),
        job_name(kind),
        {"sandbox_id": operation.sandbox_id, "op_seq": operation.op_seq},
    )


def queue_of(operation: Operation) -> str:
    """The queue of its node in which an operation is announced."""
    return f"node.{operation.node_id}.{_lane(OperationKind(operation.kind), operation.snapshot_id)}"


def _lane(kind: OperationKind, snapshot_id: str | None) -> str:
    """The node's queue for an operation; the boot of a copy of an archive unpacks it, and goes
    where archives go."""
    if kind is OperationKind.BOOT and snapshot_id is not None:
        taken = Snapshot.get_by_id(snapshot_id)
        if taken.kind == SnapshotKind.FILES_ONLY:
            return ARCHIVE_LANE
    return TRANSITIONS[kind].lane


def _supersede(sandbox_id: str) -> None:
    superseded = list(
        Operation.update(
            state=OperationState.SUPERSEDED, finished_at=now(), error="The sandbox was deleted."
        )
        .where((Operation.sandbox_id == sandbox_id) & Operation.state.in_(OPEN_STATES))
        .returning(Operation)
        .execute()
    )
    for operation in superseded:
        if operation.snapshot_id and operation.kind in CAPTURES:
            _fail_snapshot(operation.snapshot_id, "The source sandbox was deleted.")
        _release_dependents(operation, ok=False,
                            error="The source sandbox was deleted before it was captured.")


def finish(claimed: Claim, outcome: Outcome) -> list[OutboxMessage]:
    """Write the result of a claimed operation, and start what waited for it; raises LeaseLost if it
    is no longer ours.

    Afterwards `task` is empty and `status` true; the messages returned are to be flushed once the
    transaction is committed.
    """
    with database.atomic():
        before = lock_sandbox(claimed.sandbox_id)
        rows = list(
            Operation.update(
                state=OperationState.SUCCEEDED if outcome.ok else OperationState.FAILED,
                finished_at=now(),
                lease_until=None,
                error=outcome.error,
                operator_error=outcome.operator_error,
                **({"note": outcome.note} if outcome.note else {}),
            )
            .where(held(claimed))
            .returning(Operation)
            .execute()
        )
        if not rows:
            raise LeaseLost(f"operation {claimed.operation_id} epoch {claimed.epoch}")
        changed = (
            Sandbox.update(task=None, status=outcome.status, **outcome.sandbox)
            .where((Sandbox.id == claimed.sandbox_id) & (Sandbox.op_seq == claimed.op_seq))
            .execute()
        )
        if not changed:
            raise LeaseLost(f"sandbox {claimed.sandbox_id} moved past operation {claimed.op_seq}")
        if outcome.status is SandboxStatus.STOPPED:
            _let_go(claimed.sandbox_id)
        messages = _release_dependents(rows[0], ok=outcome.ok, error=outcome.error)
        if claimed.kind in CAPTURES and claimed.snapshot_id:
            messages += _finish_snapshot(claimed.snapshot_id, outcome)
        record.operation_finished(rows[0], outcome.status, outcome.error, ok=outcome.ok)
        if outcome.usage is not None and before is not None:
            counting.record_end_of_operation(outcome.usage,
                                             running=before.status == SandboxStatus.RUNNING)
        announce(claimed.sandbox_id)
    return messages


def fail_unclaimed(operation: Operation, error: str) -> bool:
    """Give up an operation that nobody works on, in the current transaction; False if somebody does
    by now."""
    lock_sandbox(operation.sandbox_id)
    if not _fail_open(operation, error):
        return False
    values: dict[str, Any] = {"task": None}
    if operation.kind == OperationKind.BOOT:
        values |= {"status": SandboxStatus.STOPPED, "stopped_at": now(), "error": error}
        _let_go(operation.sandbox_id)
    Sandbox.update(**values).where(
        (Sandbox.id == operation.sandbox_id) & (Sandbox.op_seq == operation.op_seq)
    ).execute()
    if operation.kind == OperationKind.BOOT:
        record.sandbox_stopped(operation.sandbox_id, StopReason.BOOT_FAILED, error)
    if operation.kind in CAPTURES and operation.snapshot_id:
        _fail_snapshot(operation.snapshot_id, error)
    _release_dependents(operation, ok=False, error=error)
    announce(operation.sandbox_id)
    return True


def _let_go(sandbox_id: str) -> None:
    """Give back what a sandbox that is now stopped held, in the current transaction: its ports, its
    callback token."""
    release_ports(sandbox_id)
    agent_servers.forget_bootstrap(sandbox_id)


def lock_sandbox(sandbox_id: str) -> Sandbox | None:
    """The row, locked for the rest of the transaction; None if there is none."""
    return Sandbox.select().where(Sandbox.id == sandbox_id).for_update(ROW_LOCK).get_or_none()


def _fail_open(operation: Operation, error: str) -> bool:
    """Fail an operation unless its state or epoch has changed since it was read."""
    return bool(
        Operation.update(state=OperationState.FAILED, finished_at=now(), error=error)
        .where(
            (Operation.id == operation.id)
            & (Operation.epoch == operation.epoch)
            & (Operation.state == operation.state)
        )
        .execute()
    )


def _finish_snapshot(snapshot_id: str, outcome: Outcome) -> list[OutboxMessage]:
    if outcome.ok:
        Snapshot.update(**outcome.snapshot).where(Snapshot.id == snapshot_id).execute()
        taken = Snapshot.get_by_id(snapshot_id)
        return [] if taken.transient or taken.uploaded_to_store else [disk_upload.announce(taken)]
    _fail_snapshot(snapshot_id, outcome.error or "The snapshot could not be captured.")
    return []


def _fail_snapshot(snapshot_id: str, error: str) -> None:
    Snapshot.update(state=SnapshotState.FAILED, error=error).where(
        (Snapshot.id == snapshot_id) & (Snapshot.state == SnapshotState.PENDING)
    ).execute()


def _release_dependents(operation: Operation, *, ok: bool,
                        error: str | None) -> list[OutboxMessage]:
    """Start the boots that waited for a capture, or fail them with it."""
    waiting = Operation.select().where(
        (Operation.after_id == operation.id) & (Operation.state == OperationState.WAITING)
    )
    messages = []
    for dependent in waiting:
        if not ok:
            _fail_dependent(dependent, error or "The source could not be captured.")
        elif Operation.update(state=OperationState.PENDING).where(
                _still_waiting(dependent)).execute():
            messages.append(announcement(dependent))
    return messages


def _still_waiting(dependent: Operation) -> Any:
    return (Operation.id == dependent.id) & (Operation.state == OperationState.WAITING)


def _fail_dependent(dependent: Operation, error: str) -> None:
    lock_sandbox(dependent.sandbox_id)
    if not _fail_open(dependent, error):
        return
    Sandbox.update(task=None, status=SandboxStatus.STOPPED, stopped_at=now(), error=error).where(
        (Sandbox.id == dependent.sandbox_id) & (Sandbox.op_seq == dependent.op_seq)
    ).execute()
    record.sandbox_stopped(dependent.sandbox_id, StopReason.SOURCE_NOT_CAPTURED, error)
    _let_go(dependent.sandbox_id)
    announce(dependent.sandbox_id)
