"""What an operation leaves behind that has failed for good, or whose result did not count: what its
row and its owner are told, and what is removed."""
import logging

from models.database import now
from models.states import OperationKind, SandboxStatus
from nodeworker.error_texts import named, printable
from nodeworker.faults import fault
from nodeworker.handlers import archives
from nodeworker.handlers.agent_server import StillServing
from nodeworker.handlers.archives import ArchiveFailed, ArchiveUnusable
from nodeworker.handlers.fetch_boot_source import DiskNotHere
from nodeworker.hypervisor.driver import DriverError, NoDiskSpace, VmNotFound, VmState
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim
from services.sandboxes.idle import restarted_clock
from services.sandboxes.outcomes import Outcome

log = logging.getLogger(__name__)
# Errors whose text is for the owner, and those that no further attempt would mend.
_TOLD = (ArchiveFailed, ArchiveUnusable, DiskNotHere, StillServing)
FINAL = (ArchiveUnusable, StillServing)
_NO_SPACE = "Its node has no disk space for it at present."

# The status that is true of what the driver finds on the host.
_STATUS_OF = {
    VmState.RUNNING: SandboxStatus.RUNNING,
    VmState.PARTIAL: SandboxStatus.RUNNING,
    VmState.SAVED: SandboxStatus.HIBERNATED,
    VmState.DISK_ONLY: SandboxStatus.HIBERNATED,
}


def failure(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode, error: Exception) -> Outcome:
    """What is true after a handler failed for good: a boot leaves nothing (see `remove_unbooted`),
    everything else what the host shows. What runs after all can become idle from now on."""
    operator_error = named(error)
    if claimed.kind is OperationKind.BOOT:
        fault("boot.failed")
        text = _owner_text(error, "The sandbox could not be started.")
        gone = {"stopped_at": now(), "error": text}
        return Outcome(False, SandboxStatus.STOPPED, sandbox=gone, error=text,
                       operator_error=operator_error)
    found = deps.driver.inspect(sandbox.id)
    status = _STATUS_OF[found] if found else sandbox.status
    if isinstance(error, VmNotFound):
        text = "The sandbox's files are not on its node."
    else:
        text = _owner_text(
            error, f"The {claimed.kind.value} failed; the sandbox is {status.value}.")
    clock = {}
    if status is SandboxStatus.RUNNING and sandbox.status != status:
        clock = restarted_clock()
    elif status is SandboxStatus.RUNNING and claimed.kind is OperationKind.HIBERNATE:
        # Else it would stay the idlest of its node, which is tried before all others.
        clock = {"idle_at": restarted_clock()["idle_at"]}
    return Outcome(False, status, sandbox=clock, error=text, operator_error=operator_error)


def _owner_text(error: Exception, text: str) -> str:
    """`text` for the owner, with the reason if it may be shown, or what the error says in its
    place."""
    if isinstance(error, NoDiskSpace):
        return f"{text} {_NO_SPACE}"
    return printable(str(error)) if isinstance(error, _TOLD) else text


def remove_unbooted(deps: NodeDeps, sandbox_id: str) -> None:
    """Remove what the failed boot of a sandbox has left, after its row is `stopped`: only then no
    other worker can have taken the boot over and finished it. Should this process die before that,
    the reconciler removes a machine whose row is stopped."""
    try:
        deps.driver.terminate(sandbox_id)
    except DriverError as error:
        log.warning("what the failed boot of %s left is removed later: %s", sandbox_id, error)


def superseded(deps: NodeDeps, claimed: Claim) -> None:
    """Undo what a handler left outside this host although its result did not count."""
    if claimed.kind is OperationKind.ARCHIVE and claimed.snapshot_id:
        archives.discard(deps, claimed.snapshot_id, claimed.epoch)
