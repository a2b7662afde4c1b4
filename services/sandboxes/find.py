"""Finds a sandbox for its owner: nobody else may see it or use it."""
from typing import Any, TypeVar

from peewee import fn

from models.database import connection
from models.nodes import PortBinding
from models.row import Lookup
from models.sandboxes import Sandbox
from services.errors import Forbidden, NotFound, WrongNode
from services.sandboxes.caller import Caller
from services.sandboxes.views import SandboxView, view_of

OneSandbox = TypeVar("OneSandbox", Sandbox, SandboxView)
# What a view is made of, in one row, with its ports as one value: each column takes time, and this
# is asked for most.
_SHOWN = (Sandbox.id, Sandbox.owner, Sandbox.node_id, Sandbox.status, Sandbox.cwd, Sandbox.vm_ip,
          Sandbox.created_at, Sandbox.preferred_model, Sandbox.error, Sandbox.start_command,
          Sandbox.preset, Sandbox.preset_state, Sandbox.preset_error)
_PORTS = PortBinding.select(
    fn.json_object_agg(PortBinding.host_port, PortBinding.guest_port)
).where((PortBinding.sandbox_id == Sandbox.id) & (PortBinding.host_port != Sandbox.agent_port))
VIEW = Lookup(Sandbox, *_SHOWN, _PORTS.alias("port_map"))


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
    """The sandbox as its owner sees it now; raises as `get_owned`."""
    with connection():
        return _view(caller, VIEW.find(sandbox_id), sandbox_id)


def get_view_at_call(caller: Caller, sandbox_id: str) -> SandboxView:
    """The same, as it was when the call began."""
    return _view(caller, caller.find(VIEW, sandbox_id), sandbox_id)


def _view(caller: Caller, found: Sandbox | None, sandbox_id: str) -> SandboxView:
    sandbox: Any = check_owned(caller, found, sandbox_id)
    return view_of(sandbox, {int(host): guest for host, guest in (sandbox.port_map or {}).items()})
