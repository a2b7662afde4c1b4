"""Which host ports lead to the ports of a sandbox, for its whole life. A binding is made with the
node's row locked."""
import random
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

import peewee

from config.settings import Settings
from guest.agent.protocol import AGENT_PORT
from models.database import ROW_LOCK, now
from models.nodes import Node, PortBinding, RestingPort
from models.operations import Operation
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import OWN_KINDS, OperationKind, OperationState
from services.errors import InvalidRequest, Unavailable
from services.hosts.port_room import PortsWanted, agents_range, find_shortage, tenants_range
from services.hosts.resting_ports import resting

PORTS_MAX = 64
_TRIES = 8
_RETRY_AFTER_S = 30
_OPENERS = (OperationKind.BOOT, OperationKind.WAKE, OperationKind.FORWARD)
_OF_SANDBOX = Statement(
    PortBinding,
    lambda sandbox_id: PortBinding.select().where(PortBinding.sandbox_id == sandbox_id),
    prepared=True,
)


@dataclass(frozen=True)
class Bearer:
    """Whose ports are bound: the sandbox, its owner, and its kind. `op_seq` is the number of its
    last operation: the next one that begins forwards the new ports."""

    sandbox_id: str
    owner_id: str
    kind: str
    op_seq: int = 0

    def wants(self, guest_ports: Collection[int]) -> PortsWanted:
        """What host ports for these are to it. What the service makes for itself is of nobody's
        share."""
        agents = len({AGENT_PORT} & set(guest_ports))
        owner_id = None if self.kind in OWN_KINDS else self.owner_id
        return PortsWanted(owner_id, len(set(guest_ports)) - agents, agents)


def bind_ports(settings: Settings, node: Node, bearer: Bearer,
               guest_ports: tuple[int, ...]) -> dict[int, int]:
    """Give each guest port of a new sandbox a host port of `node`, whose row was locked when room
    for them was found there; returns guest port -> host port.

    Raises InvalidRequest beyond PORTS_MAX, Unavailable when the range is used up.
    """
    _check_number(guest_ports)
    return {port: _bind_one(settings, node, bearer, port) for port in dict.fromkeys(guest_ports)}


def bind_more(settings: Settings, sandbox: Sandbox, guest_ports: tuple[int, ...]) -> None:
    """Give those of the guest ports a host port that have none; the sandbox's row is locked, its
    node's row gets locked if there are such.

    Raises InvalidRequest beyond PORTS_MAX, Unavailable when the range, or its owner's share of it,
    is used up.
    """
    bound = {row.guest_port for row in PortBinding.select(PortBinding.guest_port).where(
        PortBinding.sandbox_id == sandbox.id)}
    new, bearer = set(guest_ports) - bound, _bearer(sandbox)
    if not new:
        return
    _check_number({*bound, *new})
    node = Node.select().where(Node.id == sandbox.node_id).for_update(ROW_LOCK).get()
    shortage = find_shortage(settings, node, bearer.wants(new))
    if shortage:
        raise Unavailable(shortage, retry_after_s=_RETRY_AFTER_S)
    for port in sorted(new):
        _bind_one(settings, node, bearer, port)


def _check_number(guest_ports: Collection[int]) -> None:
    if len({*guest_ports, AGENT_PORT}) > PORTS_MAX + 1:
        raise InvalidRequest(f"a sandbox may expose at most {PORTS_MAX} ports")


def move_agent_port(settings: Settings, node: Node, sandbox: Sandbox) -> None:
    """Give the agent of a sleeping sandbox a port of the agents' range, if it has another: the
    range was set or moved since it was made. The node's row is locked."""
    if sandbox.agent_port in agents_range(node):
        return
    PortBinding.delete().where((PortBinding.sandbox_id == sandbox.id)
                               & (PortBinding.guest_port == AGENT_PORT)).execute()
    sandbox.agent_port = _bind_one(settings, node, _bearer(sandbox), AGENT_PORT)
    Sandbox.update(agent_port=sandbox.agent_port).where(Sandbox.id == sandbox.id).execute()


def tenant_ports(sandbox: Sandbox) -> dict[int, int]:
    """The host ports of a sandbox and the guest ports they lead to, without its agent's."""
    return {row.host_port: row.guest_port for row in _OF_SANDBOX.all(sandbox.id)
            if row.host_port != sandbox.agent_port}


def open_ports(sandbox_id: str, under_way: int | None = None) -> set[int]:
    """The guest ports to which a host port leads while the sandbox runs. A boot, a wake or a
    `forward` opens every port that was bound before it began: one that has succeeded, or the one
    that is `under_way`, by its number."""
    ended = Operation.select(peewee.fn.MAX(Operation.op_seq)).where(
        (Operation.sandbox_id == sandbox_id) & Operation.kind.in_(_OPENERS)
        & (Operation.state == OperationState.SUCCEEDED))
    last = ended if under_way is None else under_way
    bound = PortBinding.select(PortBinding.guest_port).where(
        (PortBinding.sandbox_id == sandbox_id) & (PortBinding.bound_seq < last))
    return {row.guest_port for row in bound}


def _bearer(sandbox: Sandbox) -> Bearer:
    return Bearer(sandbox.id, sandbox.owner_id, sandbox.kind, sandbox.op_seq)


def _bind_one(settings: Settings, node: Node, bearer: Bearer, guest_port: int) -> int:
    everything = agents_range(node) if guest_port == AGENT_PORT else tenants_range(node)
    rests = (RestingPort.node_id == node.id) & resting(
        now() - timedelta(seconds=settings.port_rest_s))
    for _ in range(_TRIES):
        host_port = random.choice(everything)
        if _insert(node, bearer, guest_port, host_port, rests):
            return host_port
    taken = {row.host_port for model, which in (
        (PortBinding, PortBinding.node_id == node.id), (RestingPort, rests)
    ) for row in model.select(model.host_port).where(which)}
    free = [port for port in everything if port not in taken]
    host_port = random.choice(free or [0])
    if host_port and _insert(node, bearer, guest_port, host_port, rests):
        return host_port
    raise Unavailable(f"Node {node.id} has no free host ports.", retry_after_s=_RETRY_AFTER_S)


def _insert(node: Node, bearer: Bearer, guest_port: int, host_port: int,
            rests: peewee.Expression) -> bool:
    """Bind a port that is free and does not rest; False if it is neither."""
    binding = {
        PortBinding.node_id: node.id, PortBinding.host_port: host_port,
        PortBinding.guest_port: guest_port, PortBinding.sandbox_id: bearer.sandbox_id,
        PortBinding.owner_id: bearer.owner_id, PortBinding.bound_seq: bearer.op_seq,
    }
    rested = ~peewee.fn.EXISTS(RestingPort.select().where(
        rests & (RestingPort.host_port == host_port)))
    row = peewee.Select(columns=[peewee.Value(each) for each in binding.values()]).where(rested)
    inserted = PortBinding.insert_from(row, list(binding)).on_conflict_ignore()
    return any(True for _ in inserted.returning(PortBinding.host_port).execute())
