"""Runs one announced operation: claim, handle, finish.

1. Claim by compare-and-set; nothing to claim means another has it, it is done, or it was
superseded: end quietly. 2. Count what the machine has used, for its process may be about to end.
Handle under a lease kept alive. The host being busy with this sandbox puts the operation back for a
moment. 3. A failure is tried again (the operation is put back) until its attempts are used up; then
what the host shows is written. 4. Finish under the claim's epoch. If the lease is lost, our result
does not count, and whoever has it now will write theirs.
"""
import logging
import time

from models.database import DatabaseUnavailable, connection
from models.states import OperationKind, SandboxStatus
from nodeworker import usage
from nodeworker.faults import fault
from nodeworker.handlers import lifecycle
from nodeworker.handlers.start_service import NotReady
from nodeworker.hypervisor.driver import VmBusy, VmNotFound
from nodeworker.leases import LeaseKeeper
from nodeworker.object_store import StoreUnavailable
from nodeworker.wiring import NodeDeps
from services.hosts import assignments
from services.hosts.assignments import SandboxOnNode
from services.operations import claims, outbox
from services.operations.claims import Claim, LeaseLost
from services.sandboxes import outcomes
from services.sandboxes.outcomes import Outcome
from services.snapshots import on_node

log = logging.getLogger(__name__)
_BUSY_DELAY_S = 0.5
_RETRY_DELAY_S = 1.0
_LONGEST_DELAY_S = 30.0
_FINISH_TRIES = 5


class AttemptsUsedUp(Exception):
    """The operation was begun as often as is allowed and never came to an end."""


def run_operation(deps: NodeDeps, sandbox_id: str, op_seq: int, lane: str) -> None:
    """Work on one operation if it is free; returns when it is finished, put back or somebody
    else's."""
    lease_s = deps.settings.operation_lease_s
    with connection():
        claimed = claims.claim(sandbox_id, op_seq, f"{deps.settings.node_id}/{lane}", lease_s)
        if claimed is None:
            return
        sandbox = assignments.get_assigned(sandbox_id)
    fault("runner.claimed")
    with LeaseKeeper(claimed, lease_s):
        if sandbox.status == SandboxStatus.RUNNING:
            usage.sample_sandbox(deps, sandbox_id)
        outcome = _handle(deps, claimed, sandbox)
        if outcome is not None:
            outcome = usage.with_reading(deps, sandbox, outcome)
    fault("runner.handled")
    if outcome is not None:
        _finish_surely(deps, claimed, outcome)


def _handle(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome | None:
    limit = deps.settings.operation_attempts
    try:
        if claimed.attempts > limit and claimed.kind is not OperationKind.STOP:
            raise AttemptsUsedUp(f"its worker died {limit} times in the middle of it")
        return lifecycle.HANDLERS[claimed.kind](deps, claimed, sandbox)
    except VmBusy:
        with connection():
            claims.put_back(claimed, _BUSY_DELAY_S)
        return None
    except Exception as error:  # whatever went wrong, the row must come to a true and stable state
        last = claimed.attempts >= limit or isinstance(error, (NotReady, VmNotFound))
        log.exception("%s of %s failed, attempt %d", claimed.kind.value, claimed.sandbox_id,
                      claimed.attempts)
        if claimed.kind is OperationKind.STOP or not last:
            with connection():
                delay_s = min(_RETRY_DELAY_S * claimed.attempts, _LONGEST_DELAY_S)
                claims.put_back(claimed, delay_s,
                                lifecycle.printable(f"{type(error).__name__}: {error}"))
            return None
        return lifecycle.failure(deps, claimed, sandbox, error)


def _finish_surely(deps: NodeDeps, claimed: Claim, outcome: Outcome) -> None:
    """Finish, also across a restart of the database; should all tries fail, the operation is run
    again and finds it done."""
    for _ in range(_FINISH_TRIES):
        try:
            return _finish(deps, claimed, outcome)
        except DatabaseUnavailable as error:
            log.warning("cannot write the result of %s: %s", claimed.sandbox_id,
                        type(error).__name__)
            time.sleep(_RETRY_DELAY_S)


def _finish(deps: NodeDeps, claimed: Claim, outcome: Outcome) -> None:
    with connection():
        try:
            messages = outcomes.finish(claimed, outcome)
        except LeaseLost as error:
            log.warning("result of %s of %s does not count: %s", claimed.kind.value,
                        claimed.sandbox_id, error)
            return _undo(deps, claimed)
        fault("runner.finished")
        outbox.flush(deps.queue, messages)
        if claimed.kind is OperationKind.BOOT and claimed.snapshot_id:
            if on_node.is_transient(claimed.snapshot_id):
                lifecycle.forget_transient(deps, claimed.snapshot_id)


def _undo(deps: NodeDeps, claimed: Claim) -> None:
    try:
        lifecycle.superseded(deps, claimed)
    except StoreUnavailable as error:
        log.warning("what %s of %s stored in vain stays: %s", claimed.kind.value,
                    claimed.sandbox_id, error)
