"""Connects a call to the guest of a sandbox, and tells whether that guest can still answer."""
import peewee

from models.database import connection
from models.nodes import Node
from models.sandboxes import Sandbox
from models.statements import Statement
from services.errors import Conflict, Unavailable
from services.guest_calls.activity import still_running
from services.protocols import Deps, Guest

_ADDRESS = Statement(Node, lambda node_id: Node.select(Node.address).where(Node.id == node_id))


def connect(deps: Deps, sandbox: Sandbox) -> Guest:
    """The data road to a sandbox's guest, through the address of its node."""
    with connection():
        address = _ADDRESS.find(sandbox.node_id).address
    return deps.connect_guest(address, sandbox.agent_port, sandbox.agent_token)


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
    return Unavailable("The sandbox did not answer.", retry_after_s=2)
