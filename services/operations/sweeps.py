"""The clockwork: due times are columns, and each sweep takes what is due with SKIP LOCKED, so two
beats do no harm."""
import logging
from datetime import timedelta

import peewee

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import IdempotencyKey, Operation, OutboxMessage
from models.sandboxes import Activity, Sandbox
from models.states import OPEN_STATES, OperationKind, OperationState, SandboxStatus
from services.operations import outbox, protocol
from services.protocols import Deps

log = logging.getLogger(__name__)
_BATCH = 200


def hibernate_idle(deps: Deps) -> int:
    """Begin to hibernate running sandboxes whose idle time is over and that nothing uses; returns
    how many.

    The row lock and the condition on `idle_at` settle the race with a call that begins at the same
    moment.
    """
    messages: list[OutboxMessage] = []
    with connection():
        with database.atomic():
            in_flight = Activity.select().where(
                (Activity.sandbox_id == Sandbox.id) & (Activity.expires_at > now())
            )
            idle = (
                Sandbox.select()
                .where(
                    (Sandbox.status == SandboxStatus.RUNNING)
                    & Sandbox.task.is_null()
                    & (Sandbox.idle_at <= now())
                    & ~peewee.fn.EXISTS(in_flight)
                )
                .order_by(Sandbox.idle_at)
                .limit(_BATCH)
                .for_update(UNLOCKED_ROWS)
            )
            for sandbox in idle:
                messages += protocol.begin(deps.settings, sandbox, OperationKind.HIBERNATE)[1]
        outbox.flush(deps.queue, messages)
    return len(messages)


def announce_neglected(deps: Deps) -> int:
    """Announce again what no worker took in time, or whose worker's lease has run out; returns how
    many."""
    present = now()
    messages: list[OutboxMessage] = []
    with connection():
        with database.atomic():
            neglected = (
                Operation.select()
                .where(
                    (
                        (Operation.state == OperationState.PENDING)
                        & (Operation.announce_at <= present)
                    )
                    | (
                        (Operation.state == OperationState.RUNNING)
                        & (Operation.lease_until < present)
                    )
                )
                .order_by(Operation.id)
                .limit(_BATCH)
                .for_update(UNLOCKED_ROWS)
            )
            for operation in neglected:
                again = present + timedelta(seconds=deps.settings.operation_sweep_s * 3)
                Operation.update(announce_at=again).where(Operation.id == operation.id).execute()
                messages.append(protocol.announcement(operation))
        outbox.flush(deps.queue, messages)
    return len(messages)


def fail_overdue(deps: Deps) -> int:
    """Give up operations that no worker has finished by their deadline and that nobody works on
    now; returns how many.

    A stop is never given up. A sandbox whose node is gone for good stays what it was, except one
    that never booted.
    """
    present = now()
    count = 0
    with connection():
        overdue = list(
            Operation.select()
            .where(
                Operation.state.in_(OPEN_STATES)
                & (Operation.deadline_at < present)
                & (Operation.lease_until.is_null() | (Operation.lease_until < present))
                & (Operation.kind != OperationKind.STOP)
            )
            .limit(_BATCH)
        )
        for operation in overdue:
            with database.atomic():
                failed = protocol.fail_unclaimed(operation,
                                                 f"The {operation.kind} did not finish in time.")
            if failed:
                log.error("%s of %s missed its deadline", operation.kind, operation.sandbox_id)
                count += 1
    return count


def forget_expired(deps: Deps) -> int:
    """Remove idempotency keys that are past their time and whose sandbox is gone, and activities of
    dead processes."""
    present = now()
    with connection():
        Activity.delete().where(Activity.expires_at < present).execute()
        live = Sandbox.select(Sandbox.id).where(Sandbox.status != SandboxStatus.STOPPED)
        return int(
            IdempotencyKey.delete()
            .where((IdempotencyKey.expires_at < present) & IdempotencyKey.resource_id.not_in(live))
            .execute()
        )
