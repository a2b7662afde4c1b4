"""Gives one worker the right to work on an operation, for the length of a lease, under an epoch of
its own.

A compare-and-set gives that right. A second message for an operation, or one for an operation that
is done or was superseded, finds nothing to claim. Whoever loses the lease finds out when it renews
it or writes its result: the epoch has grown. An operation that has to wait is parked: it is a row
that nobody holds until it is due. Which operation a worker is given is decided in
`services/operations/fair_share.py`.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import peewee

from models.database import now
from models.operations import Operation
from models.states import Lane, OperationKind, OperationState
from services.operations.due_work import too_far_ahead

# What a claim writes, beside worker, lease and start.
TAKEN = {
    "state": OperationState.RUNNING,
    "epoch": Operation.epoch + 1,
    "attempts": Operation.attempts + 1,
    "due_at": None,
}
# No operation is given back for longer than this.
LONGEST_PAUSE_S = 30.0
# What an operation may be parked for before it has come to what its guest runs.
HOST_BUSY, GUEST_START = "the host to be done with the sandbox", "its guest to start"
DATABASE_AWAY = "the database"


class LeaseLost(Exception):
    """Another worker holds the operation now, or it was superseded; the caller's result does not
    count."""


@dataclass(frozen=True)
class Claim:
    """The right to work on one operation until the lease ends; `epoch` is its proof.

    `waits_for` is what the operation was parked for last, and `waited_s` how many seconds it has
    waited for that, all parkings together. It came to wait for that at `wait_since`; `waited` has
    the seconds before that, for each thing that was waited for.
    """

    operation_id: int
    sandbox_id: str
    op_seq: int
    kind: OperationKind
    epoch: int
    attempts: int
    snapshot_id: str | None
    owner_id: str
    node_id: str
    lane: Lane
    readiness_port: int | None = None
    ends_listener: bool = False
    note: str | None = None
    waits_for: str | None = None
    waited_s: float = 0.0
    wait_since: datetime | None = None
    waited: Mapping[str, float] = field(default_factory=dict)

    def waited_for_s(self, what: str) -> float:
        """How many seconds it has waited for `what`, also if it waited for something else in
        between."""
        return self.waited_s if self.waits_for == what else self.waited.get(what, 0.0)


def claim(sandbox_id: str, op_seq: int, worker: str, lease_s: float) -> Claim | None:
    """Take this very operation for `lease_s` seconds; None when there is nothing to do (done,
    superseded, parked, or in another's hands)."""
    which, present = Operation.numbered(sandbox_id, op_seq), now()
    rows = list(taking(which, worker, present, present + timedelta(seconds=lease_s)).execute())
    return claim_of(rows[0]) if rows else None


def taking(which: Any, worker: Any, present: Any, lease_until: Any) -> Any:
    """The statement that takes the operation of the condition `which`, if it is free, and gives its
    row."""
    # By the clock that a node's heartbeats have, with which this is compared.
    started_at = peewee.fn.COALESCE(Operation.started_at, peewee.fn.clock_timestamp())
    taken = Operation.update(TAKEN, claimed_by=worker, lease_until=lease_until,
                             started_at=started_at)
    return taken.where(which & free(present)).returning(Operation)


def free(present: Any) -> Any:
    """The condition on operations that a worker may take: due, or its worker has gone silent."""
    due = (Operation.due_at.is_null() | (Operation.due_at <= present)
           | too_far_ahead(Operation.due_at, present, LONGEST_PAUSE_S))
    return ((Operation.state == OperationState.PENDING) & due) | (
        (Operation.state == OperationState.RUNNING) & (Operation.lease_until < present)
    )


def claim_of(row: Operation) -> Claim:
    """The claim that a row stands for which was just taken."""
    waited: Mapping[str, float] = row.waited or {}
    waited_s = _until_now_s(row.waits_for, row.wait_since, waited)
    return Claim(row.id, row.sandbox_id, row.op_seq, OperationKind(row.kind), row.epoch,
                 row.attempts, row.snapshot_id, row.owner_id, row.node_id, Lane(row.lane),
                 row.readiness_port, row.ends_listener, row.note, row.waits_for, waited_s,
                 row.wait_since, waited)


def _until_now_s(what: str | None, since: datetime | None, before: Mapping[str, float]) -> float:
    """The seconds that were waited for `what`, which is waited for `since` a moment."""
    if what is None or since is None:
        return 0.0
    return before.get(what, 0.0) + max((now() - since).total_seconds(), 0.0)


def held(claimed: Claim) -> Any:
    """The condition on operations that picks this one while the claim counts."""
    return held_under(claimed.operation_id, claimed.epoch)


def held_under(operation_id: Any, epoch: Any) -> Any:
    """As `held`, of the claim with these."""
    return ((Operation.id == operation_id) & (Operation.epoch == epoch)
            & (Operation.state == OperationState.RUNNING))


def renew(claimed: Claim, lease_s: float) -> None:
    """Lengthen the lease to `lease_s` seconds from now; raises LeaseLost."""
    until = now() + timedelta(seconds=lease_s)
    if not Operation.update(lease_until=until).where(held(claimed)).execute():
        raise _lost(claimed)


def check_held(claimed: Claim) -> None:
    """Raises LeaseLost if the claim does not count any more: for who is about to change what
    others would feel, after work that took long."""
    if not Operation.select().where(held(claimed)).exists():
        raise _lost(claimed)


def park(claimed: Claim, delay_s: float, waits_for: str, *, begun: bool = True) -> None:
    """Give an operation back that has to wait: nobody holds it, and it is announced again after
    `delay_s` seconds. The attempt does not count as one; unless it has `begun` to make something,
    the operation is as one that nobody has started. Raises LeaseLost."""
    _give_back(claimed, delay_s, {
        "attempts": Operation.attempts - 1, **_wait(claimed, waits_for),
        **({} if begun else {"started_at": None})
    })


def _wait(claimed: Claim, waits_for: str) -> dict[str, Any]:
    """The columns of an operation that waits for this from now on. The wait before it, if that was
    another, keeps its seconds: without them a guest that makes an operation wait now for this, now
    for that, would be waited for without end. One that is to begin only later is of a clock that
    was set back, and begins now."""
    before, present = claimed.waits_for, now()
    if before == waits_for and claimed.wait_since is not None and claimed.wait_since <= present:
        return {}
    waited = dict(claimed.waited)
    if before is not None:
        waited[before] = _until_now_s(before, claimed.wait_since, waited)
    return {"waits_for": waits_for, "wait_since": present, "waited": waited}


def put_back(claimed: Claim, delay_s: float, operator_error: str | None = None) -> None:
    """Give an operation back whose attempt failed with `operator_error`; it is announced again
    after `delay_s` seconds. Raises LeaseLost."""
    _give_back(claimed, delay_s, {"operator_error": operator_error, "started_at": None})


def _give_back(claimed: Claim, delay_s: float, values: Mapping[str, Any]) -> None:
    due = now() + timedelta(seconds=delay_s)
    given = Operation.update(dict(values), state=OperationState.PENDING, claimed_by=None,
                             lease_until=None, due_at=due, announce_at=due).where(held(claimed))
    if not given.execute():
        raise _lost(claimed)


def _lost(claimed: Claim) -> LeaseLost:
    return LeaseLost(f"operation {claimed.operation_id} epoch {claimed.epoch}")


def was_finished(claimed: Claim) -> bool:
    """True if it was under this very claim that the operation ended."""
    ended = (OperationState.SUCCEEDED, OperationState.FAILED)
    return bool(Operation.select().where(
        (Operation.id == claimed.operation_id) & (Operation.epoch == claimed.epoch)
        & Operation.state.in_(ended)).exists())


def annotate(claimed: Claim, note: str) -> None:
    """Tell operators something about an operation while it is under way; it stays unless `finish`
    has another note."""
    Operation.update(note=note).where(held(claimed)).execute()


def release_leases(worker: str) -> int:
    """End the leases that `worker` held before it was restarted, so that its operations are taken
    up at once."""
    present = now()
    return int(
        Operation.update(lease_until=present, announce_at=present)
        .where((Operation.claimed_by == worker) & (Operation.state == OperationState.RUNNING))
        .execute()
    )
