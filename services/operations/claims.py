"""Gives one worker the right to work on an operation, for the length of a lease, under an epoch of
its own.

A compare-and-set gives that right. A second message for an operation, or one for an operation that
is done or was superseded, finds nothing to claim. Whoever loses the lease finds out when it renews
it or writes its result: the epoch has grown.
"""
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from models.database import now
from models.operations import Operation
from models.states import OperationKind, OperationState


class LeaseLost(Exception):
    """Another worker holds the operation now, or it was superseded; the caller's result does not
    count."""


@dataclass(frozen=True)
class Claim:
    """The right to work on one operation until the lease ends; `epoch` is its proof."""

    operation_id: int
    sandbox_id: str
    op_seq: int
    kind: OperationKind
    epoch: int
    attempts: int
    snapshot_id: str | None


def claim(sandbox_id: str, op_seq: int, worker: str, lease_s: float) -> Claim | None:
    """Take an operation for `lease_s` seconds; None when there is nothing to do (done, superseded,
    or in another's hands)."""
    present = now()
    free = (Operation.state == OperationState.PENDING) | (
        (Operation.state == OperationState.RUNNING) & (Operation.lease_until < present)
    )
    rows = list(
        Operation.update(
            state=OperationState.RUNNING,
            epoch=Operation.epoch + 1,
            attempts=Operation.attempts + 1,
            claimed_by=worker,
            lease_until=present + timedelta(seconds=lease_s),
            started_at=present,
        )
        .where((Operation.sandbox_id == sandbox_id) & (Operation.op_seq == op_seq) & free)
        .returning(Operation)
        .execute()
    )
    if not rows:
        return None
    row = rows[0]
    return Claim(row.id, row.sandbox_id, row.op_seq, OperationKind(row.kind), row.epoch,
                 row.attempts, row.snapshot_id)


def held(claimed: Claim) -> Any:
    """The condition on operations that picks this one while the claim counts."""
    return (
        (Operation.id == claimed.operation_id)
        & (Operation.epoch == claimed.epoch)
        & (Operation.state == OperationState.RUNNING)
    )


def renew(claimed: Claim, lease_s: float) -> None:
    """Lengthen the lease to `lease_s` seconds from now; raises LeaseLost."""
    until = now() + timedelta(seconds=lease_s)
    if not Operation.update(lease_until=until).where(held(claimed)).execute():
        raise LeaseLost(f"operation {claimed.operation_id} epoch {claimed.epoch}")


def put_back(claimed: Claim, delay_s: float, operator_error: str | None = None) -> None:
    """Give an operation back so that it is announced again after `delay_s` seconds: the host was
    busy with it, or the attempt failed with `operator_error`."""
    until = now() + timedelta(seconds=delay_s)
    Operation.update(lease_until=until, claimed_by=None, operator_error=operator_error).where(
        held(claimed)).execute()


def annotate(claimed: Claim, note: str) -> None:
    """Tell operators something about an operation while it is under way; it stays unless `finish`
    has another note."""
    Operation.update(note=note).where(held(claimed)).execute()


def release_leases(worker: str) -> int:
    """End the leases that `worker` held before it was restarted, so that its operations are taken
    up at once."""
    return int(
        Operation.update(lease_until=now())
        .where((Operation.claimed_by == worker) & (Operation.state == OperationState.RUNNING))
        .execute()
    )
