"""Ends operations with all that their end means for the sandbox and for what waited for them.

1. The rows of operation and sandbox are written, see `services/operations/finish.py`. 2. A sandbox
that is stopped now gives back what it holds (`freed_when_stopped.py`). 3. The boots that waited for
a capture are released, or stopped with its error. 4. A captured snapshot is ready or failed; its
disk is announced for upload. 5. The event is recorded, the usage counted, and the answer kept that
a create with an agent preset waits for. Each function does all of this in one transaction. The
sandbox row is locked before its operations.
"""
import logging
from dataclasses import dataclass, field
from typing import Any

from config.settings import Settings
from models.database import connection, database, now
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.states import CAPTURES, OPEN_STATES, OperationKind, OperationState, SandboxStatus
from services.events import record
from services.events.types import StopReason
from services.metering import counting
from services.metering.counting import Sample
from services.operations import finish as operations
from services.operations.begin import begin, lock_sandbox, supersede
from services.operations.claims import (
    DATABASE_AWAY,
    GUEST_START,
    HOST_BUSY,
    Claim,
    LeaseLost,
    annotate,
)
from services.operations.row_changes import notify
from services.protocols import Deps
from services.sandboxes import freed_when_stopped
from services.sandboxes.views import sandbox_view
from services.snapshots import pending

log = logging.getLogger(__name__)
_BATCH = 200


@dataclass(frozen=True)
class Outcome:
    """The result of an operation, as the worker that held it found it.

    `status` is the sandbox's status that is now true, `sandbox` are further columns of its row.
    `snapshot` are columns of the captured snapshot, after a success only. After a failure `error`
    is for the client and `operator_error` for operators. `usage` is what the host has counted of a
    running sandbox. `note` is for operators.
    """

    ok: bool
    status: SandboxStatus
    sandbox: dict[str, Any] = field(default_factory=dict)
    snapshot: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    operator_error: str | None = None
    usage: Sample | None = None
    note: str | None = None


def finish(claimed: Claim, outcome: Outcome) -> list[OutboxMessage]:
    """Write the result of a claimed operation, and start what waited for it; raises LeaseLost if it
    is no longer ours.

    Afterwards `task` is empty and `status` true; the messages returned are to be flushed once the
    transaction is committed.
    """
    with database.atomic():
        before = lock_sandbox(claimed.sandbox_id)
        operation = operations.end_claimed(
            claimed, ok=outcome.ok, error=outcome.error, operator_error=outcome.operator_error,
            note=outcome.note)
        if not operations.end_task(operation, _columns(outcome)):
            raise LeaseLost(f"sandbox {claimed.sandbox_id} moved past operation {claimed.op_seq}")
        if outcome.status is SandboxStatus.STOPPED:
            freed_when_stopped.release(claimed.sandbox_id)
        if outcome.ok:
            messages = operations.release_dependents(operation)
            if claimed.kind in CAPTURES and claimed.snapshot_id:
                messages += pending.complete(claimed.snapshot_id, outcome.snapshot)
        else:
            messages = []
            _fail_dependents(operation, outcome.error or "The source could not be captured.")
            _fail_capture(operation, outcome.error or "The snapshot could not be captured.")
        assert before is not None, "a row whose task was just ended is there"
        if outcome.ok and claimed.kind is OperationKind.BOOT and before.preset is not None:
            _keep_answer(claimed.sandbox_id)
        record.operation_finished(operation, before, outcome.status, outcome.error, ok=outcome.ok)
        if outcome.usage is not None:
            counting.record_end_of_operation(outcome.usage,
                                             running=before.status == SandboxStatus.RUNNING)
        notify(claimed.sandbox_id)
    return messages


def _keep_answer(sandbox_id: str) -> None:
    """Whoever asked for a sandbox with an agent preset gets this answer, now or later."""
    made = Sandbox.get_by_id(sandbox_id)
    operations.keep_answer(sandbox_id, sandbox_view(made).to_json())


def _columns(outcome: Outcome) -> dict[str, Any]:
    """What the sandbox's row gets: one that does not run has no address, cannot become idle, and no
    service that is not ready."""
    if outcome.status in (SandboxStatus.RUNNING, SandboxStatus.PROVISIONING):
        return {**outcome.sandbox, "status": outcome.status}
    return {"error": None, **outcome.sandbox, "vm_ip": "", "idle_at": None,
            "status": outcome.status}


def report_running(claimed: Claim, columns: dict[str, Any], usage: Sample | None,
                   note: str | None) -> None:
    """Say of a sandbox that it runs while its operation goes on; raises LeaseLost if that is no
    longer ours.

    Afterwards its status is `running` with the further `columns`, and its `task` what it was. The
    running time counts from `usage` on.
    """
    with database.atomic():
        before = operations.report(claimed, {**columns, "status": SandboxStatus.RUNNING})
        if note is not None:
            annotate(claimed, note)
        if usage is not None:
            counting.record_end_of_operation(usage,
                                             running=before.status == SandboxStatus.RUNNING)
        notify(claimed.sandbox_id)


def report_columns(claimed: Claim, columns: dict[str, Any]) -> None:
    """Write what a node has found out about a sandbox while its operation goes on; raises LeaseLost
    if that is no longer ours."""
    with database.atomic():
        operations.report(claimed, columns)
        notify(claimed.sandbox_id)


def end_wait(sandbox: Sandbox, for_what: OperationKind) -> bool:
    """End the wake of a sandbox that runs already and only waits for its service, since `for_what`
    is asked for; False if it is at anything else, if its last attempt failed, or a worker is just
    looking. The row must be locked."""
    if sandbox.task != OperationKind.WAKE or sandbox.status != SandboxStatus.RUNNING:
        return False
    # Whether that gets ready, nobody knows from now on: the next wake is to wait for it again.
    told = ("The wake did not wait until its service was ready, because of another operation"
            f" ({for_what.value}). The next wake waits for it again.")
    # One that failed to open new ports is pending and due too, but as one that nobody has started.
    # One that waits for the host or the database has opened none either. One whose guest still
    # starts is all that adopts it: what came next would save it in mid-boot.
    parked = (Operation.numbered(sandbox.id, sandbox.op_seq)
              & (Operation.state == OperationState.PENDING) & Operation.due_at.is_null(False)
              & Operation.started_at.is_null(False)
              & Operation.waits_for.not_in((HOST_BUSY, GUEST_START, DATABASE_AWAY)))
    ended = list(
        Operation.update(state=OperationState.SUCCEEDED, finished_at=now(), operator_error=told)
        .where(parked).returning(Operation).execute()
    )
    if not ended:
        return False
    operations.end_task(ended[0], {"error": told})
    sandbox.task = None
    notify(sandbox.id)
    return True


def fail_unclaimed(operation: Operation, error: str) -> bool:
    """Give up an operation that nobody works on, in the current transaction; False if somebody does
    by now. A sandbox whose boot is given up is stopped, any other keeps its status."""
    lock_sandbox(operation.sandbox_id)
    if not operations.end_unclaimed(operation, error):
        return False
    if operation.kind == OperationKind.BOOT:
        _stop_unbooted(operation, StopReason.BOOT_FAILED, error)
    else:
        operations.end_task(operation, {})
    _fail_capture(operation, error)
    _fail_dependents(operation, error)
    notify(operation.sandbox_id)
    return True


def fail_overdue(deps: Deps) -> int:
    """Give up operations that no worker has finished by their deadline and that nobody works on
    now; returns how many.

    A stop is never given up. A sandbox whose node is gone for good stays what it was, except one
    that never booted.
    """
    count = 0
    with connection():
        for operation in overdue_query(now()).limit(_BATCH):
            with database.atomic():
                failed = fail_unclaimed(operation, f"The {operation.kind} did not finish in time.")
            if failed:
                log.error("%s of %s missed its deadline", operation.kind, operation.sandbox_id)
                count += 1
    return count


def overdue_query(moment: Any) -> Any:
    """Those that `fail_overdue` gives up at a moment."""
    return Operation.select().where(
        Operation.state.in_(OPEN_STATES) & (Operation.deadline_at < moment)
        & (Operation.lease_until.is_null() | (Operation.lease_until < moment))
        & (Operation.kind != OperationKind.STOP))


def begin_stop(settings: Settings, sandbox: Sandbox, *,
               requested_by: str | None = None) -> tuple[Operation, list[OutboxMessage]]:
    """Begin to stop a sandbox whose row is locked, whatever is under way: that is superseded.

    Captures under way fail, and the boots that waited for them. Raises Conflict for a stopped
    sandbox; the current transaction must then be rolled back.
    """
    for operation in supersede(sandbox, "The sandbox was deleted."):
        _fail_capture(operation, "The source sandbox was deleted.")
        _fail_dependents(operation, "The source sandbox was deleted before it was captured.")
    return begin(settings, sandbox, OperationKind.STOP, requested_by=requested_by)


def _fail_capture(operation: Operation, error: str) -> None:
    if operation.kind in CAPTURES and operation.snapshot_id:
        pending.fail(operation.snapshot_id, error)


def _fail_dependents(operation: Operation, error: str) -> None:
    """Stop the sandboxes whose boots waited for a capture that gave nothing."""
    for dependent in operations.list_dependents(operation):
        lock_sandbox(dependent.sandbox_id)
        if operations.end_unclaimed(dependent, error):
            _stop_unbooted(dependent, StopReason.SOURCE_NOT_CAPTURED, error)
            notify(dependent.sandbox_id)


def _stop_unbooted(boot: Operation, reason: StopReason, error: str) -> None:
    """Make the sandbox of a failed boot `stopped`, with the event that says why."""
    operations.end_task(boot, {"status": SandboxStatus.STOPPED, "stopped_at": now(),
                               "error": error, "vm_ip": ""})
    record.sandbox_stopped(boot.sandbox_id, reason, error)
    freed_when_stopped.release(boot.sandbox_id)
