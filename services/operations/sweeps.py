"""Announces operations again that no worker took in time, or whose worker's lease has run out.

The due times are columns. The sweep takes what is due with SKIP LOCKED, so two beats do no harm.
"""
from datetime import timedelta

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import Operation, OutboxMessage
from models.states import OperationState
from services.operations import outbox
from services.operations.announcements import announce
from services.protocols import Deps

_BATCH = 200


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
                messages.append(announce(operation))
        outbox.flush(deps.queue, messages)
    return len(messages)
