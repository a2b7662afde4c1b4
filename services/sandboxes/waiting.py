"""Waits until a sandbox is free for the next operation, for the end of an operation, and for a
status.

1. The row is locked and the caller's attempt decides. 2. If another operation is under way, the
attempt is rolled back, and repeated when the row has changed. 3. What the attempt began is
announced after its commit. Who only waits for a status begins nothing.
"""
from collections.abc import Callable
from typing import TypeVar

from models.database import connection, database
from models.operations import Operation, OutboxMessage
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import OperationKind, OperationState, SandboxStatus
from services.errors import Conflict, Unavailable
from services.operations import outbox
from services.operations.begin import lock_sandbox
from services.operations.row_changes import wait_until
from services.operations.transitions import asked_for, describe, still_to_come
from services.protocols import Deps
from services.sandboxes import find
from services.sandboxes.caller import Caller
from services.sandboxes.outcomes import end_wait
from services.sandboxes.views import SandboxView, sandbox_view

Result = TypeVar("Result")
_FINAL = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.SUPERSEDED)
_ENDED = Statement(Operation, lambda sandbox_id, op_seq: Operation.select().where(
    Operation.numbered(sandbox_id, op_seq) & Operation.state.in_(_FINAL)), values=2)
# The same, or its sandbox runs, whatever it goes on for.
_UP = Statement(Operation, lambda sandbox_id, op_seq: Operation.select().join(
    Sandbox, on=Sandbox.id == Operation.sandbox_id).where(
    Operation.numbered(sandbox_id, op_seq)
    & (Operation.state.in_(_FINAL) | (Sandbox.status == SandboxStatus.RUNNING))), values=2)


class _Busy(Exception):
    """Another operation is under way; the attempt is to be repeated when it has ended."""


def attempt_when_free(deps: Deps, sandbox_id: str,
                      attempt: Callable[[Sandbox], tuple[Result, list[OutboxMessage]]]) -> Result:
    """Call `attempt` with the locked row, in a transaction, until `check_free` lets it through.

    Returns its result and sends its messages. Raises what `attempt` raises, and Unavailable when
    the sandbox is busy for longer than SVC_OPERATION_WAIT_S.
    """

    def locked_attempt() -> tuple[Result] | None:
        try:
            with database.atomic():
                sandbox = lock_sandbox(sandbox_id)
                assert sandbox is not None
                result, messages = attempt(sandbox)
        except _Busy:
            return None
        outbox.flush(deps.queue, messages)
        return (result,)

    found = wait_until(sandbox_id, locked_attempt, deps.settings.operation_wait_s)
    if found is None:
        raise _still_busy(sandbox_id)
    return found[0]


def check_free(sandbox: Sandbox, kind: OperationKind) -> None:
    """Let an attempt through that would begin `kind`, unless an operation is under way: then the
    attempt is repeated later.

    Only a wake waits for a boot. Everything else is refused with a Conflict that names the state
    (our choice). Nobody waits for a wake that only waits for its service: that wait is ended.
    """
    if sandbox.task is None:
        return
    if sandbox.status == SandboxStatus.PROVISIONING and kind is not OperationKind.WAKE:
        raise Conflict(
            f"The sandbox is {sandbox.status}; {asked_for(kind)} is not possible in that state.")
    if not end_wait(sandbox, kind):
        raise _Busy


def check_free_to_capture(sandbox: Sandbox, kind: OperationKind) -> None:
    """As `check_free`, but a sandbox that is being stopped is not waited for: to begin is a
    Conflict at once."""
    if sandbox.task != OperationKind.STOP:
        check_free(sandbox, kind)


def wait_for_operation(deps: Deps, sandbox_id: str, op_seq: int, *,
                       more_s: float = 0, only_machine: bool = False) -> Operation:
    """Wait for the end of an operation, `more_s` seconds on top of SVC_OPERATION_WAIT_S if it waits
    for its guest by then; with `only_machine` no longer than until its sandbox is `running`. Raises
    Unavailable if it failed or goes on too long, Conflict if superseded."""
    done = _UP if only_machine else _ENDED

    def probe() -> Operation | None:
        found: Operation | None = done.find(sandbox_id, op_seq)
        return found

    operation = wait_until(sandbox_id, probe, deps.settings.operation_wait_s)
    if operation is None and more_s and _waits_for_its_guest(sandbox_id, op_seq):
        operation = wait_until(sandbox_id, probe, more_s)
    if operation is None:
        raise _still_busy(sandbox_id)
    if operation.state == OperationState.SUPERSEDED:
        raise Conflict("The sandbox was deleted meanwhile.")
    if operation.state == OperationState.FAILED:
        raise Unavailable(operation.error or "The operation failed.")
    return operation


def find_arrived(caller: Caller, sandbox_id: str, wanted: SandboxStatus) -> SandboxView | None:
    """The sandbox if it has the status `wanted` and no operation is taking it away, or if it can
    have it no more; None if that is still to come. Raises as `find.get_owned`."""
    with connection():
        sandbox = find.get_owned(caller, sandbox_id)
        task = OperationKind(sandbox.task) if sandbox.task else None
        if still_to_come(SandboxStatus(sandbox.status), task, wanted):
            return None
        return sandbox_view(sandbox)


def wait_for_status(caller: Caller, sandbox_id: str, wanted: SandboxStatus,
                    timeout_s: float) -> SandboxView:
    """The sandbox once `find_arrived` finds it, or as it is after `timeout_s` seconds; raises as
    `find.get_owned`."""
    found = wait_until(sandbox_id, lambda: find_arrived(caller, sandbox_id, wanted), timeout_s,
                       of_many=True)
    return found or find.get_view(caller, sandbox_id)


def wait_for_boot(sandbox_id: str, timeout_s: float) -> SandboxView:
    """A sandbox that was made once its boot has ended, well or not, or as it is after `timeout_s`
    seconds."""

    def probe() -> SandboxView | None:
        sandbox = Sandbox.get_by_id(sandbox_id)
        return None if sandbox.status == SandboxStatus.PROVISIONING else sandbox_view(sandbox)

    booted = wait_until(sandbox_id, probe, timeout_s, of_many=True)
    if booted is not None:
        return booted
    with connection():
        return sandbox_view(Sandbox.get_by_id(sandbox_id))


def _waits_for_its_guest(sandbox_id: str, op_seq: int) -> bool:
    with connection():
        operation = Operation.get(Operation.numbered(sandbox_id, op_seq))
    return operation.waits_for is not None


def _still_busy(sandbox_id: str) -> Unavailable:
    """The error for a caller who has waited long enough; what it waited for goes on."""
    with connection():
        sandbox = Sandbox.get_by_id(sandbox_id)
    return Unavailable(
        f"The sandbox is still {describe(sandbox.status, sandbox.task)}; the operation goes on, ask"
        " again later.",
        retry_after_s=5,
    )
