"""Finds a sandbox for its owner: nobody else may see it or use it."""
from typing import Any, TypeVar

from peewee import fn

from models.database import connection
from models.nodes import PortBinding
from models.row import Statement
from models.sandboxes import Sandbox
from services.errors import Forbidden, NotFound, WrongNode
from services.sandboxes.caller import Caller
from services.sandboxes.views import SandboxView, view_of

OneSandbox = TypeVar("OneSandbox", Sandbox, SandboxView)
# What its owner sees of it, in one row: its ports as one value, and neither its variables nor its
# secret, which may be much.
_PORTS = PortBinding.select(
    fn.json_object_agg(PortBinding.host_port, PortBinding.guest_port)
).where((PortBinding.sandbox_id == Sandbox.id) & (PortBinding.host_port != Sandbox.agent_port))
_WITH_PORTS = Statement(
    Sandbox,
    lambda sandbox_id: Sandbox.select(
        *Sandbox.fields_but("env", "agent_token"), _PORTS.alias("port_map")
    ).where(Sandbox.id == sandbox_id),
    prepared=True,
)


def get_owned(caller: Caller, sandbox_id: str) -> Sandbox:
    """The row, if the caller owns it; raises NotFound, Forbidden, or WrongNode when the caller
    pinned another node."""
    with connection():
        sandbox = Sandbox.find_by_id(sandbox_id)
    return check_owned(caller, sandbox, sandbox_id)


def check_owned(caller: Caller, sandbox: Sandbox | None, sandbox_id: str) -> Sandbox:
    """`sandbox` if it exists and the caller may use it; raises as `get_owned`."""
    if sandbox is None:
        raise NotFound(f"There is no sandbox {sandbox_id}.")
    if sandbox.owner_id != caller.owner.id:
        raise Forbidden("This sandbox belongs to another account.")
    return check_pin(caller, sandbox)


def check_pin(caller: Caller, sandbox: OneSandbox) -> OneSandbox:
    """`sandbox`, a row or a view, if it is on the node that the caller pinned, if any; raises
    WrongNode."""
    if caller.pinned_node not in (None, sandbox.node_id):
        raise WrongNode(
            f"Sandbox {sandbox.id} is on node {sandbox.node_id}, not on {caller.pinned_node}.")
    return sandbox


def get_view(caller: Caller, sandbox_id: str) -> SandboxView:
    """The sandbox as its owner sees it; raises as `get_owned`."""
    with connection():
        found = _WITH_PORTS.find(sandbox_id)
    sandbox: Any = check_owned(caller, found, sandbox_id)
    return view_of(sandbox, {int(host): guest for host, guest in (sandbox.port_map or {}).items()})
