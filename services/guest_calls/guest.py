"""Connects a call to the guest of a sandbox, and tells whether that guest can still answer."""
import peewee

from guest.agent.protocol import NO_SPACE
from guest.client.errors import AgentRefused
from models.nodes import Node
from models.row import Lookup
from models.sandboxes import Sandbox
from services.errors import Conflict, Unavailable
from services.guest_calls.use_while_running import still_running
from services.protocols import Deps, Guest
from services.sandboxes.caller import Caller
from services.sandboxes.find import check_owned

# What a call to a guest asks of its sandbox, a third of the row: each column takes time, in each
# call.
_ASKED = (Sandbox.id, Sandbox.owner, Sandbox.node_id, Sandbox.status, Sandbox.task, Sandbox.op_seq,
          Sandbox.agent_port, Sandbox.agent_token, Sandbox.cwd, Sandbox.env,
          Sandbox.idle_timeout_s)
WITH_ADDRESS = Lookup(
    Sandbox, *_ASKED, Node.address.alias("node_address"),
    join=lambda query: query.left_outer_join(Node, on=Node.id == Sandbox.node_id),
)


def get_owned(caller: Caller, sandbox_id: str) -> Sandbox:
    """What is `_ASKED` of the row, whose rules are those of `find.get_owned`, with where its guest
    is, which `connect` needs."""
    return check_owned(caller, caller.find(WITH_ADDRESS, sandbox_id), sandbox_id)


def connect(deps: Deps, sandbox: Sandbox) -> Guest:
    """The data road to a sandbox's guest, through the address of its node."""
    return deps.connect_guest(sandbox.node_address, sandbox.agent_port, sandbox.agent_token)


def can_answer(sandbox: Sandbox) -> bool:
    """False once the guest cannot answer any more; a database that is away for a moment ends
    nothing."""
    try:
        return still_running(sandbox)
    except (peewee.OperationalError, peewee.InterfaceError):
        return True


def unreachable(sandbox: Sandbox, what: str) -> Conflict | Unavailable:
    """The error for a guest that went away in the middle of `what`: put to sleep or stopped
    meanwhile, or dead."""
    if not still_running(sandbox):
        return Conflict(f"The sandbox was put to sleep or stopped while {what} was under way.")
    return Unavailable(f"The sandbox did not answer while {what} was under way.", retry_after_s=2)


def refused(refusal: AgentRefused, what: str) -> Conflict | Unavailable:
    """The error for what a guest refuses although the request breaks no rule: its disk is full, or
    something in it cannot serve; `what` says what was refused."""
    if refusal.code == NO_SPACE:
        return Conflict(f"{what}: the disk of the sandbox is full.")
    return Unavailable(f"{what}: {refusal.message}", retry_after_s=5)
