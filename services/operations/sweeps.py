"""Announces operations again that are due: parked ones whose time has come, those that no worker
took in time, and those whose worker's lease has run out. Only lanes that work are told, of nodes
that report (`reporting_nodes.py`).

The due times are columns. The sweep takes what is due with SKIP LOCKED, so two of them do no harm:
the control plane sweeps all nodes, which is the guarantee, and each node its own parked operations
when they are due, so that what waits for a guest goes on at once.

What has ended long ago is forgotten.
"""
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import peewee

from config.settings import Settings
from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import Operation, OutboxMessage
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import OperationState, SandboxStatus
from services.operations import outbox
from services.operations.announcements import announce
from services.operations.claims import LONGEST_PAUSE_S
from services.operations.due_work import too_far_ahead
from services.operations.reporting_nodes import reporting_ids
from services.protocols import Deps, Queue

_BATCH = 200
_FORGOTTEN_AT_ONCE = 1000


def announce_neglected(deps: Deps) -> int:
    """Announce again what no worker took in time, or whose worker's lease has run out; returns how
    many of them were not just parked."""
    with connection():
        which = _neglected(now(), deps.settings.node_dead_after_s)
        announced = _announce(deps.settings, deps.queue, which)
    return sum(operation.due_at is None for operation in announced)


def due_query(moment: Any, within_s: Any) -> Any:
    """Those that `announce_neglected` announces at a moment, to lanes that work of nodes that have
    reported in the last `within_s` seconds."""
    return Operation.select().where(_neglected(moment, within_s))


def _neglected(moment: Any, within_s: Any) -> Any:
    states = (Operation.state == OperationState.PENDING,
              (Operation.state == OperationState.RUNNING) & (Operation.lease_until < moment))
    times = (Operation.announce_at <= moment,
             too_far_ahead(Operation.announce_at, moment, LONGEST_PAUSE_S))
    # Each state with each time: so the index is asked for what is due, and not for all that waits.
    due = reduce(or_, (state & time for state in states for time in times))
    return due & Operation.node_id.in_(reporting_ids(within_s, Operation.lane))


def announce_due(settings: Settings, queue: Queue, node_id: str) -> datetime | None:
    """Announce the parked operations of this node whose time has come; returns when the first was
    due or will be, None if nothing is parked for a lane that works."""
    within_s = settings.node_dead_after_s
    with connection():
        first = _FIRST_PARKED.find(node_id, within_s)
        if first is not None and first.announce_at <= now():
            due = Operation.announce_at <= now()
            _announce(settings, queue, _parked(node_id, within_s) & due)
    return None if first is None else first.announce_at


def _parked(node_id: Any, within_s: Any) -> Any:
    return ((Operation.state == OperationState.PENDING) & (Operation.node_id == node_id)
            & Operation.due_at.is_null(False)
            & Operation.node_id.in_(reporting_ids(within_s, Operation.lane)))


_FIRST_PARKED = Statement(Operation, lambda node_id, within_s: Operation.select(
    Operation.announce_at).where(_parked(node_id, within_s)).order_by(
        Operation.announce_at).limit(1), values=2)


def forget_old(days: int) -> int:
    """Remove a batch of the operations that ended more than `days` days ago; returns how many, 0
    days keeps them all. Of a sandbox that is not stopped the last of each kind stays, and the last
    that succeeded: it says which of its ports are open."""
    if days <= 0:
        return 0
    later = Operation.alias()
    is_repeated = peewee.fn.EXISTS(later.select().where(
        (later.sandbox_id == Operation.sandbox_id) & (later.op_seq > Operation.op_seq)
        & (later.kind == Operation.kind)
        & ((later.state == OperationState.SUCCEEDED)
           | (Operation.state != OperationState.SUCCEEDED))))
    is_stopped = peewee.fn.EXISTS(Sandbox.select().where(
        (Sandbox.id == Operation.sandbox_id) & (Sandbox.status == SandboxStatus.STOPPED)))
    old = Operation.select(Operation.id).where(
        (Operation.finished_at < now() - timedelta(days=days)) & (is_stopped | is_repeated))
    with connection():
        return int(Operation.delete().where(
            Operation.id.in_(old.limit(_FORGOTTEN_AT_ONCE))).execute())


def _announce(settings: Settings, queue: Queue, which: Any) -> list[Operation]:
    messages: list[OutboxMessage] = []
    again = now() + timedelta(seconds=min(settings.operation_sweep_s * 3, LONGEST_PAUSE_S))
    with database.atomic():
        # What was told longest ago comes first: others would never have their turn behind a batch
        # that is due again before they are reached.
        found = Operation.select().where(which).order_by(Operation.announce_at, Operation.id)
        due = list(found.limit(_BATCH).for_update(UNLOCKED_ROWS))
        for operation in due:
            Operation.update(announce_at=again).where(Operation.id == operation.id).execute()
            messages.append(announce(operation))
    outbox.flush(queue, messages, keep=False)
    return due
