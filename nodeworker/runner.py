"""Runs one operation of a lane, the fairest: claim, handle, finish.

1. Claim by compare-and-set; nothing to claim means another has it, it is done, or it was
superseded: end quietly. 2. Count what the machine has used if its process may be about to end.
Handle under a lease kept alive. A handler that has to wait for its guest, or a host that is busy
with this sandbox, parks the operation. 3. A failure is tried again (the operation is put back)
until its attempts are used up; then what the host shows is written. 4. Finish under the claim's
epoch. If the lease is lost, our result does not count, and whoever has it now will write theirs; a
machine that was made for a sandbox which is `stopped` by now is removed.
5. Announce what the owner could not have as long as this operation was held. A database that is
away meanwhile is waited for. 6. What the end of the operation has released for this lane, the boot
of a fork whose capture it was, needs no way through the queue: its message is used up here, for the
fairest operation of the lane as always.
"""
import logging

from models.database import DatabaseUnavailable, connection, when_database_answers
from models.states import CAPTURES, Lane, OperationKind, SandboxStatus
from nodeworker import parked_operations, usage
from nodeworker.error_texts import named
from nodeworker.faults import fault
from nodeworker.handlers import failed_operations, lifecycle
from nodeworker.handlers.poll_interval import poll_interval_s
from nodeworker.hypervisor.driver import StillStarting, VmBusy, VmNotFound
from nodeworker.not_yet import NotYet
from nodeworker.renew_lease import LeaseKeeper
from nodeworker.snapshots.remove_files import forget_transient
from nodeworker.wiring import NodeDeps
from objects.store import StoreUnavailable
from services.hosts import assignments
from services.hosts.assignments import SandboxOnNode
from services.operations import attempts, claims, fair_share, outbox
from services.operations.claims import DATABASE_AWAY, GUEST_START, HOST_BUSY, Claim, LeaseLost
from services.operations.fair_share import SharedLane
from services.sandboxes import outcomes
from services.sandboxes.outcomes import Outcome
from services.snapshots import needed_on_node

log = logging.getLogger(__name__)
_BUSY_DELAY_S = 0.5


class AttemptsUsedUp(Exception):
    """The operation was begun as often as is allowed and never came to an end."""


def run_announced(deps: NodeDeps, sandbox_id: str, op_seq: int, lane_name: Lane) -> None:
    """Work on the fairest operation of this node's lane, this one if it is as fair as any; returns
    when it is finished, parked or put back, or there is none."""
    settings = deps.settings
    lane = SharedLane.of_this_node(settings, lane_name)
    with connection():
        claimed = fair_share.claim_fairest(lane, (sandbox_id, op_seq), settings.operation_lease_s)
    following = None if claimed is None else _work(deps, lane, claimed, goes_on=True)
    if following is not None:
        fault("runner.went_on")
        _work(deps, lane, following, goes_on=False)


def _work(deps: NodeDeps, lane: SharedLane, claimed: Claim, *, goes_on: bool) -> Claim | None:
    """Work on a claimed operation until it is finished, parked or put back. Returns the claim on
    what to go on with, if that is wanted and something was released."""
    settings, following = deps.settings, None
    fault("runner.claimed")
    try:
        with LeaseKeeper(lambda: claims.renew(claimed, settings.operation_lease_s),
                         settings.operation_lease_s, f"operation {claimed.operation_id}"):
            outcome = _run(deps, claimed)
        if outcome is not None:
            fault("runner.handled")
            messages = when_database_answers(lambda: _finish(deps, claimed, outcome))
            if goes_on:
                following = when_database_answers(lambda: fair_share.claim_without_queue(
                    lane, deps.queue, messages, settings.operation_lease_s))
            else:
                when_database_answers(lambda: outbox.flush(deps.queue, messages))
    finally:
        # who goes on holds as many slots as before
        if following is None or following.owner_id != claimed.owner_id:
            when_database_answers(lambda: _announce_next(deps, lane, claimed.owner_id))
    return following


def _announce_next(deps: NodeDeps, lane: SharedLane, owner_id: str) -> None:
    outbox.flush(deps.queue, fair_share.announce_left_behind(lane, owner_id))


def _run(deps: NodeDeps, claimed: Claim) -> Outcome | None:
    """The result; None if the operation was given back."""
    sandbox = when_database_answers(
        lambda: assignments.get_assigned(deps.settings, claimed.sandbox_id))
    ends = claimed.kind not in CAPTURES and not claimed.waits_for
    if sandbox.status == SandboxStatus.RUNNING and ends:
        usage.sample_sandbox(deps, sandbox.id)
    outcome = _handle(deps, claimed, sandbox)
    if outcome is None:
        parked_operations.tell_ctl(deps.settings.node_dir)
    if outcome is None or claimed.kind in CAPTURES:  # what is captured runs on, counted as before
        return outcome
    return usage.with_reading(deps, sandbox, outcome)


def _handle(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome | None:
    try:
        return _try(deps, claimed, sandbox)
    except LeaseLost as error:
        log.warning("%s of %s is not ours any more: %s", claimed.kind.value, claimed.sandbox_id,
                    error)
        _undo(deps, claimed)
    return None


def _try(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome | None:
    """The result; None if the operation was given back. Raises LeaseLost."""
    limit = attempts.limit_of(deps.settings, claimed.kind)
    try:
        if attempts.is_one_too_many(claimed.attempts, limit):
            raise AttemptsUsedUp(f"its worker died {limit} times in the middle of it")
        return lifecycle.HANDLERS[claimed.kind](deps, claimed, sandbox)
    except NotYet as wait:
        _park(claimed, poll_interval_s(claimed.waited_for_s(wait.waits_for)), wait.waits_for,
              begun=wait.begun)
    except StillStarting as starting:
        _park(claimed, starting.again_in_s, GUEST_START)
    except VmBusy:
        _park(claimed, _BUSY_DELAY_S, claimed.waits_for or HOST_BUSY,
              begun=claimed.waits_for not in (None, HOST_BUSY))
    except DatabaseUnavailable as error:
        log.warning("%s of %s goes on when the database is back: %s", claimed.kind.value,
                    claimed.sandbox_id, type(error).__name__)
        _park(claimed, 0, claimed.waits_for or DATABASE_AWAY)
    except LeaseLost:
        raise
    except Exception as error:  # whatever went wrong, the row must come to a true and stable state
        # What was deleted meanwhile has failed of that.
        when_database_answers(lambda: claims.check_held(claimed))
        log.exception("%s of %s failed, attempt %d", claimed.kind.value, claimed.sandbox_id,
                      claimed.attempts)
        last = attempts.is_last(claimed.attempts, limit) or isinstance(
            error, (failed_operations.FINAL, VmNotFound))
        if claimed.kind is not OperationKind.STOP and last:
            return failed_operations.failure(deps, claimed, sandbox, error)
        pause_s = attempts.pause_s(claimed.attempts)
        said = named(error)
        when_database_answers(lambda: claims.put_back(claimed, pause_s, said))
    return None


def _park(claimed: Claim, pause_s: float, waits_for: str, *, begun: bool = True) -> None:
    fault("runner.parking")
    when_database_answers(lambda: claims.park(claimed, pause_s, waits_for, begun=begun))
    fault("runner.parked")


def _finish(deps: NodeDeps, claimed: Claim, outcome: Outcome) -> outbox.Messages:
    """Write the result if it counts; returns the messages that are to be sent then."""
    try:
        messages = outcomes.finish(claimed, outcome)
    except LeaseLost as error:
        if claims.was_finished(claimed):
            return []  # by a try whose commit got through although its answer did not
        log.warning("result of %s of %s does not count: %s", claimed.kind.value,
                    claimed.sandbox_id, error)
        _undo(deps, claimed)
        return []
    fault("runner.finished")
    if claimed.kind is OperationKind.BOOT and outcome.status is SandboxStatus.STOPPED:
        failed_operations.remove_unbooted(deps, claimed.sandbox_id)
    if claimed.kind is OperationKind.BOOT and claimed.snapshot_id:
        if needed_on_node.is_used_up(claimed.snapshot_id):
            forget_transient(deps, claimed.snapshot_id)
    return messages


def _undo(deps: NodeDeps, claimed: Claim) -> None:
    """Take back what a handler made although its result does not count. Of a boot that is the
    machine, once the row is `stopped`: until then whoever has the sandbox now decides about it."""
    if claimed.kind is OperationKind.BOOT:
        assigned = when_database_answers(
            lambda: assignments.get_assigned(deps.settings, claimed.sandbox_id))
        if assigned.status is SandboxStatus.STOPPED:
            failed_operations.remove_unbooted(deps, claimed.sandbox_id)
    try:
        failed_operations.superseded(deps, claimed)
    except StoreUnavailable as error:
        log.warning("what %s of %s stored in vain stays: %s", claimed.kind.value,
                    claimed.sandbox_id, error)
