"""Announces operations again that are due: parked ones whose time has come, those that no worker
took in time, and those whose worker's lease has run out.

The due times are columns. Most looks find nothing, so a look is one statement (several a second are
what an idle host does); what it finds is locked and looked at again. The sweep takes what is due
with SKIP LOCKED, so two of them do no harm: the control plane sweeps all nodes, which is the
guarantee, and each node its own parked operations, more often, so that what waits for a guest goes
on at once.
"""
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import Operation, OutboxMessage
from models.row import Statement
from models.states import OperationState
from services.operations import outbox
from services.operations.announcements import announce
from services.protocols import Deps, Queue

_BATCH = 200


def announce_neglected(deps: Deps) -> int:
    """Announce again what no worker took in time, or whose worker's lease has run out; returns how
    many of them were not just parked."""
    silent = (Operation.state == OperationState.RUNNING) & (Operation.lease_until < now())
    neglected = _unclaimed(now()) | silent
    with connection():
        if not Operation.select().where(neglected).exists():
            return 0
        announced = _announce(deps.settings, deps.queue, neglected)
    return sum(operation.due_at is None for operation in announced)


def announce_due(settings: Settings, queue: Queue, node_id: str) -> int:
    """Announce the parked operations of this node whose time has come; returns how many."""
    with connection():
        if _ANY_DUE.find(node_id, now()) is None:
            return 0
        return len(_announce(settings, queue, _parked(node_id, now())))


def _unclaimed(moment: Any) -> Any:
    return (Operation.state == OperationState.PENDING) & (Operation.announce_at <= moment)


def _parked(node_id: Any, moment: Any) -> Any:
    return _unclaimed(moment) & (Operation.node_id == node_id) & Operation.due_at.is_null(False)


_ANY_DUE = Statement(Operation, lambda node_id, moment: Operation.select(Operation.id).where(
    _parked(node_id, moment)).limit(1), values=2)


def _announce(settings: Settings, queue: Queue, which: Any) -> list[Operation]:
    messages: list[OutboxMessage] = []
    again = now() + timedelta(seconds=settings.operation_sweep_s * 3)
    with database.atomic():
        found = Operation.select().where(which).order_by(Operation.id).limit(_BATCH)
        due = list(found.for_update(UNLOCKED_ROWS))
        for operation in due:
            Operation.update(announce_at=again).where(Operation.id == operation.id).execute()
            messages.append(announce(operation))
    outbox.flush(queue, messages)
    return due
