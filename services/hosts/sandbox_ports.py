"""Which host ports lead to the ports of a sandbox, for its whole life. A binding is made with the
node's row locked."""
import random

from config.settings import Settings
from guest.agent.protocol import AGENT_PORT
from models.database import ROW_LOCK
from models.nodes import Node, PortBinding
from models.sandboxes import Sandbox
from services.errors import InvalidRequest, Unavailable
from services.hosts.resting_ports import resting_ports

PORTS_MAX = 64
_TRIES = 8


def bind_ports(settings: Settings, node: Node, sandbox_id: str, guest_ports: tuple[int, ...], *,
               op_seq: int = 0) -> dict[int, int]:
    """Give each guest port a host port of `node` (whose row is locked) and return guest port ->
    host port.

    Ports already bound for the sandbox keep theirs. `op_seq` is the number of its last operation:
    the next one that begins forwards the new ports. Raises InvalidRequest beyond PORTS_MAX,
    Unavailable when the range is used up.
    """
    bound = {
        row.guest_port: row.host_port
        for row in PortBinding.select().where(PortBinding.sandbox_id == sandbox_id)
    }
    if len({*bound, *guest_ports, AGENT_PORT}) > PORTS_MAX + 1:
        raise InvalidRequest(f"a sandbox may expose at most {PORTS_MAX} ports")
    for guest_port in guest_ports:
        if guest_port not in bound:
            bound[guest_port] = _bind_one(settings, node, sandbox_id, guest_port, op_seq)
    return bound


def bind_more(settings: Settings, sandbox: Sandbox, guest_ports: tuple[int, ...]) -> None:
    """`bind_ports` for a sandbox whose row is locked; its node's row gets locked."""
    node = Node.select().where(Node.id == sandbox.node_id).for_update(ROW_LOCK).get()
    bind_ports(settings, node, sandbox.id, guest_ports, op_seq=sandbox.op_seq)


def move_agent_port(settings: Settings, node: Node, sandbox: Sandbox) -> None:
    """Give the agent of a sleeping sandbox a port of the agents' range, if it has another: the
    range was set or moved since it was made. The node's row is locked."""
    if sandbox.agent_port in _range_for(node, AGENT_PORT):
        return
    PortBinding.delete().where((PortBinding.sandbox_id == sandbox.id)
                               & (PortBinding.guest_port == AGENT_PORT)).execute()
    sandbox.agent_port = _bind_one(settings, node, sandbox.id, AGENT_PORT, sandbox.op_seq)
    Sandbox.update(agent_port=sandbox.agent_port).where(Sandbox.id == sandbox.id).execute()


def _range_for(node: Node, guest_port: int) -> range:
    """The host ports that may lead to a guest port: those of agents are reached by ourselves
    only."""
    if guest_port == AGENT_PORT and node.agent_port_low is not None:
        return range(node.agent_port_low, node.agent_port_high + 1)
    return range(node.host_port_low, node.host_port_high + 1)


def _bind_one(settings: Settings, node: Node, sandbox_id: str, guest_port: int,
              op_seq: int) -> int:
    everything = _range_for(node, guest_port)
    # those of agents do not rest, and most creates need no other
    is_agents = guest_port == AGENT_PORT and node.agent_port_low is not None
    resting = set() if is_agents else resting_ports(node.id, settings.port_rest_s)
    binding = {"node_id": node.id, "guest_port": guest_port, "sandbox_id": sandbox_id,
               "bound_seq": op_seq}
    for _ in range(_TRIES):
        host_port = random.choice(everything)
        if host_port not in resting and _insert(host_port=host_port, **binding):
            return host_port
    taken = {row.host_port for row in PortBinding.select().where(PortBinding.node_id == node.id)}
    free = [port for port in everything if port not in taken | resting]
    host_port = random.choice(free or [0])
    if host_port and _insert(host_port=host_port, **binding):
        return host_port
    raise Unavailable(f"Node {node.id} has no free host ports.", retry_after_s=30)


def _insert(**binding: object) -> bool:
    inserted = PortBinding.insert(binding).on_conflict_ignore().returning(PortBinding.host_port)
    return any(True for _ in inserted.execute())
