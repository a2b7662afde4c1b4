"""Finds a sandbox for its owner: nobody else may see it or use it."""
from peewee import JOIN

from models.database import connection
from models.nodes import PortBinding
from models.row import Statement
from models.sandboxes import Sandbox
from services.errors import Forbidden, NotFound, WrongNode
from services.sandboxes.caller import Caller
from services.sandboxes.views import SandboxView, view_of

_BY_ID = Statement(Sandbox, lambda sandbox_id: Sandbox.select().where(Sandbox.id == sandbox_id),
                   prepared=True)
# A row for each port but the agent's; one where there is none.
_WITH_PORTS = Statement(
    Sandbox,
    lambda sandbox_id: Sandbox.select(
        Sandbox, PortBinding.host_port.alias("bound_port"),
        PortBinding.guest_port.alias("led_to_port"),
    ).join(PortBinding, JOIN.LEFT_OUTER, on=(
        (PortBinding.sandbox_id == Sandbox.id) & (PortBinding.host_port != Sandbox.agent_port))
    ).where(Sandbox.id == sandbox_id),
    prepared=True,
)


def get_owned(caller: Caller, sandbox_id: str) -> Sandbox:
    """The row, if the caller owns it; raises NotFound, Forbidden, or WrongNode when the caller
    pinned another node."""
    with connection():
        sandbox = _BY_ID.find(sandbox_id)
    return check_owned(caller, sandbox, sandbox_id)


def check_owned(caller: Caller, sandbox: Sandbox | None, sandbox_id: str) -> Sandbox:
    """`sandbox` if it exists and the caller may use it; raises as `get_owned`."""
    if sandbox is None:
        raise NotFound(f"There is no sandbox {sandbox_id}.")
    if sandbox.owner_id != caller.owner.id:
        raise Forbidden("This sandbox belongs to another account.")
    if caller.pinned_node not in (None, sandbox.node_id):
        raise WrongNode(
            f"Sandbox {sandbox_id} is on node {sandbox.node_id}, not on {caller.pinned_node}.")
    return sandbox


def get_view(caller: Caller, sandbox_id: str) -> SandboxView:
    """The sandbox as its owner sees it; raises as `get_owned`."""
    with connection():
        rows = _WITH_PORTS.all(sandbox_id)
    sandbox = check_owned(caller, rows[0] if rows else None, sandbox_id)
    return view_of(sandbox, {row.bound_port: row.led_to_port for row in rows if row.bound_port})
