"""Starts what is to run in a machine that is up: its agent server and its service."""
import logging

from models.states import SandboxStatus
from nodeworker.error_texts import printable
from nodeworker.handlers.agent_server import SERVER, start_agent_server
from nodeworker.handlers.end_listener import LISTENER, end_listener
from nodeworker.handlers.start_service import SERVICE, NotReady, start_service
from nodeworker.hypervisor.driver import RunningVm
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim
from services.sandboxes.outcomes import Outcome

log = logging.getLogger(__name__)
# What an operation may be parked for here.
WAITS = (SERVER, LISTENER, SERVICE)


def bring_up(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode,
             vm: RunningVm) -> NotReady | None:
    """Start the agent server and the service of a sandbox; returns why it is not ready if it
    cannot be. Raises NotYet."""
    try:
        if claimed.waits_for != SERVICE or vm.cold:
            start_agent_server(deps, claimed, sandbox)
            end_listener(deps, claimed, sandbox)
        start_service(deps, claimed, sandbox)
    except NotReady as unready:
        log.warning("%s of %s: %s", claimed.kind.value, sandbox.id, unready)
        return unready
    return None


def up(values: dict[str, object], unready: NotReady | None, note: str | None) -> Outcome:
    """The outcome of a machine that runs; its owner is told if its service does not."""
    error = operator_error = None
    if unready is not None:
        error = printable(f"The sandbox runs, but not its service: {unready.owner_text()}")
        operator_error = printable(str(unready))
    return Outcome(True, SandboxStatus.RUNNING, sandbox=values | {"error": error}, note=note,
                   operator_error=operator_error)
