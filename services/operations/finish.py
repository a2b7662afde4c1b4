"""Ends operations: writes the result of a worker, or gives up an operation that nobody works on.

1. `end_claimed` writes under the epoch of the claim: a worker whose lease was taken over cannot
write its result. 2. `end_task` clears the sandbox's `task` and writes the status that is now true;
`report` writes one while the operation goes on. Nothing else writes a status. 3. Operations that
waited for this one are released, or failed by the caller. The sandbox row is locked before its
operations. What the end means for ports, snapshots, events and usage is in
`services/sandboxes/outcomes.py`, which runs these steps in one transaction.
"""
from typing import Any

import peewee

from models.database import now
from models.operations import IdempotencyKey, Operation, OutboxMessage
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import CAPTURES, OperationState
from services.operations.announcements import announce
from services.operations.begin import lock_sandbox
from services.operations.claims import Claim, LeaseLost, held, held_under


def end_claimed(claimed: Claim, *, ok: bool, error: str | None, operator_error: str | None,
                note: str | None) -> Operation:
    """Write how a claimed operation ended; raises LeaseLost if the claim does not count any more.

    `error` is for the client, `operator_error` for operators; a `note` replaces an earlier one.
    """
    state = OperationState.SUCCEEDED if ok else OperationState.FAILED
    ended: Operation | None = _END_CLAIMED.find(claimed.operation_id, claimed.epoch, state, now(),
                                                error, operator_error, note)
    if ended is None:
        raise LeaseLost(f"operation {claimed.operation_id} epoch {claimed.epoch}")
    return ended


def _end_claimed(operation_id: Any, epoch: Any, state: Any, present: Any, error: Any,
                 operator_error: Any, note: Any) -> Any:
    return Operation.update(
        state=state, finished_at=present, lease_until=None, error=error,
        operator_error=operator_error, note=peewee.fn.COALESCE(note, Operation.note),
    ).where(held_under(operation_id, epoch)).returning(Operation)


_END_CLAIMED = Statement(Operation, _end_claimed, values=7)
_WAITING = Statement(Operation, lambda before: Operation.select().where(
    (Operation.after_id == before) & (Operation.state == OperationState.WAITING)))


def end_unclaimed(operation: Operation, error: str) -> bool:
    """Fail an operation; False if its state or epoch has changed since it was read."""
    return bool(
        Operation.update(state=OperationState.FAILED, finished_at=now(), error=error)
        .where(
            (Operation.id == operation.id)
            & (Operation.epoch == operation.epoch)
            & (Operation.state == operation.state)
        )
        .execute()
    )


def end_task(operation: Operation, columns: dict[str, Any]) -> bool:
    """Clear the sandbox's `task` and set `columns`; False if the sandbox has moved past this
    operation."""
    return bool(
        Sandbox.update(task=None, **columns)
        .where((Sandbox.id == operation.sandbox_id) & (Sandbox.op_seq == operation.op_seq))
        .execute()
    )


def report(claimed: Claim, columns: dict[str, Any]) -> Sandbox:
    """Write what is true of a sandbox, its status too, while its operation goes on, in the current
    transaction; returns the row as it was. Raises LeaseLost if the claim does not count any
    more."""
    before = lock_sandbox(claimed.sandbox_id)
    if before is None or not Operation.select().where(held(claimed)).exists():
        raise LeaseLost(f"operation {claimed.operation_id} epoch {claimed.epoch}")
    Sandbox.update(**columns).where(Sandbox.id == claimed.sandbox_id).execute()
    return before


def keep_answer(sandbox_id: str, answer: dict[str, Any]) -> None:
    """Keep what requests under the idempotency key of a sandbox are answered with, unless that is
    kept already."""
    unanswered = (IdempotencyKey.resource_id == sandbox_id) & IdempotencyKey.response.is_null()
    IdempotencyKey.update(response=answer).where(unanswered).execute()


def list_dependents(operation: Operation) -> list[Operation]:
    """The operations that wait for this one: boots of what it captures."""
    if operation.kind not in CAPTURES:
        return []
    return _WAITING.all(operation.id)


def release_dependents(operation: Operation) -> list[OutboxMessage]:
    """Start the operations that waited for this one; returns the messages that announce them."""
    messages = []
    for dependent in list_dependents(operation):
        waiting = (Operation.id == dependent.id) & (Operation.state == OperationState.WAITING)
        if Operation.update(state=OperationState.PENDING).where(waiting).execute():
            messages.append(announce(dependent))
    return messages
