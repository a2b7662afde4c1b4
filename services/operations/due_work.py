"""Has a node told of the work that waits for it, again and again, until the work is done.

1. Each piece of work is a row with a due column: when its node is told, or told again; empty means
never. 2. `announce` writes the messages, and a new due time in case they are lost or their worker
dies. 3. What is due again waits for its node to report and for the lane to work. 4. A failure puts
the next try off, longer each time (`next_try_at`). 5. Who finishes the work, or gives it up,
empties the due column. The lane does the work, and finds out by the row whether it is still to be
done.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import peewee

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import OutboxMessage
from models.states import Lane
from services.operations import outbox
from services.operations.announcements import queue_name
from services.operations.reporting_nodes import reporting_ids
from services.protocols import Deps

_BATCH = 50
# By how much the clocks of two hosts may differ (s) before one takes a time of the other's for one
# that is too far ahead. A message that comes too early does no harm.
_APART_S = 60.0


def too_far_ahead(due: Any, moment: Any, longest_s: float) -> Any:
    """The condition that the time in the column `due` is further ahead of a moment than anything
    waits, which is `longest_s`. It counts as past: the clock that it was written by was ahead, and
    has been set back since, so nobody knows when it will come."""
    return due > peewee.SQL("%s::timestamptz + %s * interval '1 second'",
                            [moment, longest_s + _APART_S])


@dataclass(frozen=True)
class DueWork:
    """One sort of work: the rows of `model` that fulfil `waiting`, each on its `node_id`.

    `due` is their due column, `key` names the columns of the primary key, `payload` makes the
    message of a row (ids only), `marks` are columns that a row gets with each announcement. Work
    that was announced `announce_again_s` seconds ago and still waits is announced again. A failure
    puts it off for `first_pause_s`, doubled with each failure up to `longest_pause_s`. `lane` is
    the node's that does it.
    """

    model: Any
    due: Any
    waiting: Any
    key: tuple[Any, ...]
    job: str
    payload: Callable[[Any], dict[str, Any]]
    announce_again_s: float
    first_pause_s: float
    longest_pause_s: float
    marks: Mapping[str, Any] = field(default_factory=dict)
    lane: Lane = Lane.BULK

    def announce(self, which: Any) -> list[OutboxMessage]:
        """Write the messages for those rows of the condition `which` that wait, and when to say so
        again; in the current transaction if there is one."""
        again = now() + timedelta(seconds=self.announce_again_s)
        with database.atomic():
            rows = list(self.model.update({self.due.name: again, **self.marks})
                        .where(self.waiting & which).returning(self.model).execute())
            return [
                outbox.add(queue_name(row.node_id, self.lane), self.job, self.payload(row))
                for row in rows
            ]

    def announce_due(self, deps: Deps, within_s: float, which: Any = True) -> int:
        """Announce a batch of what is due among the rows of `which`, the longest due first, to
        nodes that have reported in the last `within_s` seconds; returns how many."""
        messages: list[OutboxMessage] = []
        due = self.due_query(now(), within_s).where(which)
        with connection():
            with database.atomic():
                batch = due.order_by(self.due).limit(_BATCH).for_update(UNLOCKED_ROWS)
                for row in list(batch):
                    messages += self.announce(self._is(row))
            outbox.flush(deps.queue, messages, keep=False)
        return len(messages)

    def due_query(self, moment: Any, within_s: Any) -> Any:
        """What is due at a moment, on nodes that have reported in the last `within_s` seconds and
        whose lane for it works."""
        longest_s = max(self.announce_again_s, self.longest_pause_s)
        return self.model.select().where(
            self.waiting & ((self.due <= moment) | too_far_ahead(self.due, moment, longest_s))
            & self.model.node_id.in_(reporting_ids(within_s, self.lane)))

    def make_due(self, node_id: str) -> None:
        """The lane of this node has just started: what it was at, or had been told of, is
        announced again at the next sweep. What was given up stays so."""
        self.model.update({self.due.name: now()}).where(
            self.waiting & (self.model.node_id == node_id) & self.due.is_null(False)
        ).execute()

    def next_try_at(self, failures_before: int) -> datetime:
        """When work is tried again that has just failed once more."""
        return now() + timedelta(seconds=self.pause_s(failures_before))

    def pause_s(self, failures_before: int) -> float:
        """Seconds to wait after one more failure. Pure."""
        return min(self.first_pause_s * 2 ** min(failures_before, 10), self.longest_pause_s)

    def _is(self, row: Any) -> Any:
        expression = True
        for column in self.key:
            expression = (column == getattr(row, column.name)) & expression
        return expression
