"""Shares the slots of a node's lane between owners: a message only says that the lane has work, and
the worker that got it is given the operation that is fairest.

1. The claims of a lane are made one after another, under an advisory lock. 2. An owner who holds
`cap` slots gets no more. 3. Of the others, who holds the fewest comes first, then the operation
that was announced, then the oldest. 4. A message that found nothing but work of owners at their cap
is used up: when one of their claims has ended, `announce_left_behind` announces what still waits.
"""
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from models import locks
from models.database import database, now
from models.locks import LockClass
from models.operations import Operation, OutboxMessage
from models.row import Statement
from models.states import Lane, OperationState
from services.operations import outbox
from services.operations.announcements import announce, queue_name, worker_name
from services.operations.claims import Claim, claim_of, free, taking
from services.protocols import Queue


@dataclass(frozen=True)
class SharedLane:
    """A lane of a node: its worker runs `slots` operations at once, of which one owner may hold
    `share`."""

    node_id: str
    name: Lane
    slots: int
    share: float

    @classmethod
    def of_this_node(cls, settings: Settings, name: Lane) -> "SharedLane":
        """The lane as it is configured; `bulk` runs no operations."""
        slots = {Lane.CTL: settings.ctl_concurrency, Lane.OPS: settings.ops_concurrency,
                 Lane.ARCHIVE: settings.archive_concurrency,
                 Lane.DEPLOY: settings.deploy_concurrency}
        return cls(settings.node_id, name, slots.get(name, 0), settings.owner_share)

    @property
    def cap(self) -> int:
        """How many slots one owner may hold; at least one."""
        return max(1, math.floor(self.slots * self.share))

    @property
    def queue(self) -> str:
        """Where the work of this lane is announced."""
        return queue_name(self.node_id, self.name)

    @property
    def worker(self) -> str:
        """Name of the worker of this lane, under which it claims."""
        return worker_name(self.node_id, self.name)


def claim_fairest(lane: SharedLane, announced: tuple[str, int], lease_s: float) -> Claim | None:
    """Take the fairest operation of the lane for `lease_s` seconds; None when there is none that
    may be taken now. `announced` (sandbox id, op_seq) is what the message named."""
    with database.atomic():
        return _claim(lane, announced, lease_s)


def claim_without_queue(lane: SharedLane, queue: Queue, messages: outbox.Messages,
                        lease_s: float) -> Claim | None:
    """Send committed messages, but for one for this very lane, if there is one: use that up at once
    as if it had come, and take the fairest operation. What the message names is not preferred, for
    it has waited for no turn."""
    ours = [message for message in messages if message.queue == lane.queue][:1]
    outbox.flush(queue, [message for message in messages if message not in ours])
    if not ours:
        return None
    with database.atomic():
        ours[0].delete_instance()
        return _claim(lane, ("", 0), lease_s)


def announce_left_behind(lane: SharedLane, owner_id: str) -> list[OutboxMessage]:
    """Write the message for the oldest operation of an owner that waits in the lane, if there is
    one, after a claim of this owner has ended and that is committed: its own message may have come
    while the owner was at the cap."""
    oldest = _OLDEST_OF_OWNER.find(lane.node_id, lane.name, now(), owner_id)
    return [announce(oldest)] if oldest else []


def _claim(lane: SharedLane, announced: tuple[str, int], lease_s: float) -> Claim | None:
    locks.take_for_transaction(LockClass.LANE, lane.worker)
    present = now()
    taken = _TAKE_FAIREST.find(lane.node_id, lane.name, lane.cap, *announced, lane.worker,
                               present, present + timedelta(seconds=lease_s))
    return claim_of(taken) if taken else None


def _of(node_id: Any, name: Any) -> peewee.Expression:
    return (Operation.node_id == node_id) & (Operation.lane == name)


def _busy(node_id: Any, name: Any, present: Any) -> peewee.Query:
    """How many slots of the lane each owner holds."""
    other = Operation.alias()
    return (
        other.select(other.owner_id, peewee.fn.COUNT(other.id).alias("slots"))
        .where((other.node_id == node_id) & (other.lane == name)
               & (other.state == OperationState.RUNNING) & (other.lease_until >= present))
        .group_by(other.owner_id)
    )


def _take_fairest(node_id: Any, name: Any, cap: Any, sandbox_id: Any, op_seq: Any, worker: Any,
                  present: Any, lease_until: Any) -> Any:
    busy = _busy(node_id, name, present)
    slots = peewee.fn.COALESCE(busy.c.slots, 0)
    named = (Operation.sandbox_id == sandbox_id) & (
        Operation.op_seq == peewee.Value(op_seq, converter=False))
    fairest = (
        Operation.select(Operation.id)
        .left_outer_join(busy, on=busy.c.owner_id == Operation.owner_id)
        .where(_of(node_id, name) & free(present) & (slots < cap))
        .order_by(slots, named.desc(), Operation.id)
        .limit(1)
    )
    return taking(Operation.id == fairest, worker, present, lease_until)


_OLDEST_OF_OWNER = Statement(Operation, lambda node_id, name, present, owner_id: (
    Operation.select().where(
        _of(node_id, name) & free(present) & (Operation.owner_id == owner_id)
    ).order_by(Operation.id).limit(1)), values=4)
# The other workers of the lane wait meanwhile.
_TAKE_FAIREST = Statement(Operation, _take_fairest, values=8)
