"""Runs commands in a sandbox; bytes go straight to the guest, never through a queue."""
import peewee

from guest.client.errors import AgentError, AgentRefused
from guest.client.results import ExecResult
from models.database import connection
from models.nodes import Node
from models.sandboxes import Sandbox
from models.statements import Statement
from services.errors import Conflict, InvalidRequest, Unavailable
from services.guest_calls.activity import in_use, still_running
from services.operations.waits import changes
from services.protocols import Deps, ExecRequest, Guest
from services.sandboxes import find
from services.sandboxes.caller import Caller

OUTPUT_CAP_BYTES = 8 * 1024 * 1024
# What a call may take beyond the command's own deadline before we call the guest dead.
_SLACK_S = 15.0
_ADDRESS = Statement(Node, lambda node_id: Node.select(Node.address).where(Node.id == node_id))


def run(deps: Deps, caller: Caller, sandbox_id: str, request: ExecRequest) -> ExecResult:
    """Run a command as root in a running sandbox (contract, Exec rules).

    Raises Conflict unless it is running, InvalidRequest when the guest refuses the command's
    parameters, Unavailable when the guest does not answer.
    """
    sandbox = find.get_owned(caller, sandbox_id)
    hold_s = request.timeout_ms / 1000 + _SLACK_S
    with in_use(sandbox, for_s=hold_s, what="exec"), changes(sandbox.id) as changed:
        try:
            # Asked every second by each of perhaps a hundred calls: the row is read only when it
            # may have changed.
            return connect(deps, sandbox).exec(
                request.argv,
                shell=request.shell,
                cwd=request.cwd,
                env=sandbox.env | dict(request.env),
                timeout_ms=request.timeout_ms,
                detached=request.detached,
                cap_bytes=OUTPUT_CAP_BYTES,
                wanted=lambda: not changed() or can_answer(sandbox),
            )
        except AgentRefused as refusal:
            raise InvalidRequest(
                f"The command could not be started: {refusal.message}.") from refusal
        except AgentError as error:
            raise unreachable(sandbox, "the command") from error


def can_answer(sandbox: Sandbox) -> bool:
    """False once the guest cannot answer any more; a database that is away for a moment ends
    nothing."""
    try:
        return still_running(sandbox)
    except (peewee.OperationalError, peewee.InterfaceError):
        return True


def connect(deps: Deps, sandbox: Sandbox) -> Guest:
    """The data road to a sandbox's guest, through the address of its node."""
    with connection():
        address = _ADDRESS.find(sandbox.node_id).address
    return deps.connect_guest(address, sandbox.agent_port, sandbox.agent_token)


def unreachable(sandbox: Sandbox, what: str) -> Conflict | Unavailable:
    """The error for a guest that went away in the middle of `what`: put to sleep or stopped
    meanwhile, or dead."""
    if not still_running(sandbox):
        return Conflict(f"The sandbox was put to sleep or stopped while {what} was under way.")
    return Unavailable("The sandbox did not answer.", retry_after_s=2)
