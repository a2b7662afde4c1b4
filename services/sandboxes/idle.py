"""Hibernates sandboxes that nobody has used for their idle timeout."""
from datetime import timedelta

import peewee

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import OutboxMessage
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind
from services.operations import outbox
from services.operations.begin import begin
from services.operations.transitions import TRANSITIONS
from services.protocols import Deps

_BATCH = 200


def touch_values(idle_timeout_s: int) -> dict[str, object]:
    """Columns that restart the idle clock."""
    present = now()
    return {"last_active_at": present, "idle_at": present + timedelta(seconds=idle_timeout_s)}


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
                    Sandbox.status.in_(TRANSITIONS[OperationKind.HIBERNATE].starts)
                    & Sandbox.task.is_null()
                    & (Sandbox.idle_at <= now())
                    & ~peewee.fn.EXISTS(in_flight)
                )
                .order_by(Sandbox.idle_at)
                .limit(_BATCH)
                .for_update(UNLOCKED_ROWS)
            )
            for sandbox in idle:
                messages += begin(deps.settings, sandbox, OperationKind.HIBERNATE)[1]
        outbox.flush(deps.queue, messages)
    return len(messages)
