"""Which VM host takes a sandbox, and the claim on its capacity and ports.

Everything here runs in the caller's transaction. The node row is locked before its load is summed,
so parallel claims on one node are serial and never promise more than there is; nothing is counted
in a column that could drift.
"""
import random
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from guest.agent.protocol import AGENT_PORT
from models.database import ROW_LOCK, connection, now
from models.nodes import Node, PortBinding
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OPEN_STATES, OperationKind, SandboxStatus, SnapshotKind
from services.errors import InvalidRequest, Unavailable, WrongNode
from services.hosts.capacity import DiskRoom, Room, refusal
from services.hosts.nodes import SANDBOX_LANE

PORTS_MAX = 64
_PORT_TRIES = 8


def claim_node(settings: Settings, vcpus: int, mem_mb: int, pinned: str | None = None, *,
               new_files: bool = True) -> Node:
    """Lock and return a live node that has room; the least loaded first, or exactly `pinned`.

    Without `new_files` its disk does not matter: the machine has its files there already.
    Raises WrongNode when `pinned` does not exist, Unavailable when no node has room; its text says
    what is short.
    """
    if pinned is not None:
        if not Node.select().where(Node.id == pinned).exists():
            raise WrongNode(f"There is no node {pinned}.")
        order = [pinned]
    else:
        order = _by_load(settings)
    for node_id in order:
        node = Node.select().where((Node.id == node_id)
                                   & _alive(settings)).for_update(ROW_LOCK).get_or_none()
        if node is not None and node.accepting and _room(node, new_files).can_hold(vcpus, mem_mb):
            return node
    asked = _alive(settings) if pinned is None else _alive(settings) & (Node.id == pinned)
    rooms = [_room(node, new_files) for node in Node.select().where(asked)]
    raise refusal(vcpus, mem_mb, rooms, pinned)


def check_disk(node_id: str) -> None:
    """Raises Unavailable if the node's disk is below its floor: what writes new files is not begun
    there."""
    with connection():
        node = Node.get_or_none(Node.id == node_id)
        room = _disk_room(node) if node is not None else None
    refused = room.refusal(node_id) if room is not None else None
    if refused is not None:
        raise refused


def node_of_copy(taken: Snapshot, pinned: str | None = None) -> str | None:
    """The node that a sandbox made from `taken` has to be on; None if any will do, as for a
    directory in the store.

    Raises WrongNode when `pinned` is another.
    """
    if taken.kind == SnapshotKind.FILES_ONLY:
        return pinned
    if pinned not in (None, taken.node_id):
        raise WrongNode(f"Snapshot {taken.id} is on node {taken.node_id}, not on {pinned}.")
    return str(taken.node_id)


def claim_capacity(settings: Settings, sandbox: Sandbox) -> None:
    """Make sure that the node of a sleeping sandbox has room to run it, and that its agent has a
    port of the node's range for agents; raises Unavailable."""
    node = claim_node(settings, sandbox.vcpus, sandbox.mem_mb, sandbox.node_id, new_files=False)
    _move_agent_port(node, sandbox)


def bind_ports(node: Node, sandbox_id: str, guest_ports: tuple[int, ...]) -> dict[int, int]:
    """Give each guest port a host port of `node` (whose row is locked) and return guest port ->
    host port.

    Ports already bound for the sandbox keep theirs. Raises InvalidRequest beyond PORTS_MAX,
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
            bound[guest_port] = _bind_one(node, sandbox_id, guest_port)
    return bound


def _move_agent_port(node: Node, sandbox: Sandbox) -> None:
    """Give the agent of a sleeping sandbox a port of the agents' range, if it has another: the
    range was set or moved since it was made."""
    if sandbox.agent_port in _range_for(node, AGENT_PORT):
        return
    PortBinding.delete().where((PortBinding.sandbox_id == sandbox.id)
                               & (PortBinding.guest_port == AGENT_PORT)).execute()
    sandbox.agent_port = _bind_one(node, sandbox.id, AGENT_PORT)
    Sandbox.update(agent_port=sandbox.agent_port).where(Sandbox.id == sandbox.id).execute()


def _range_for(node: Node, guest_port: int) -> range:
    """The host ports that may lead to a guest port: those of agents are reached by ourselves
    only."""
    if guest_port == AGENT_PORT and node.agent_port_low is not None:
        return range(node.agent_port_low, node.agent_port_high + 1)
    return range(node.host_port_low, node.host_port_high + 1)


def _bind_one(node: Node, sandbox_id: str, guest_port: int) -> int:
    everything = _range_for(node, guest_port)
    for _ in range(_PORT_TRIES):
        if _insert_binding(node.id, sandbox_id, guest_port, random.choice(everything)) is not None:
            break
    else:
        taken = {
            row.host_port for row in PortBinding.select().where(PortBinding.node_id == node.id)
        }
        free = [port for port in everything if port not in taken]
        if not free or _insert_binding(node.id, sandbox_id, guest_port,
                                       random.choice(free)) is None:
            raise Unavailable(f"Node {node.id} has no free host ports.", retry_after_s=30)
    row = PortBinding.get((PortBinding.sandbox_id == sandbox_id)
                          & (PortBinding.guest_port == guest_port))
    return int(row.host_port)


def _insert_binding(node_id: str, sandbox_id: str, guest_port: int, host_port: int) -> int | None:
    rows = (
        PortBinding.insert(
            node_id=node_id, host_port=host_port, guest_port=guest_port, sandbox_id=sandbox_id
        )
        .on_conflict_ignore()
        .returning(PortBinding.host_port)
        .execute()
    )
    return next((row.host_port for row in rows), None)


def release_ports(sandbox_id: str) -> None:
    """Free all host ports of a sandbox that is gone from its host."""
    PortBinding.delete().where(PortBinding.sandbox_id == sandbox_id).execute()


def _alive(settings: Settings) -> Any:
    """Nodes that report, and whose lane for sandboxes has started."""
    fresh = Node.heartbeat_at > now() - timedelta(seconds=settings.node_dead_after_s)
    return fresh & (Node.lanes.is_null() | Node.lanes.contains([SANDBOX_LANE]))


def _occupying() -> Any:
    return Sandbox.status.in_((SandboxStatus.PROVISIONING, SandboxStatus.RUNNING)) | (
        Sandbox.task.in_((OperationKind.WAKE, OperationKind.HIBERNATE))
        & (Sandbox.status != SandboxStatus.STOPPED)
    )


def _room(node: Node, new_files: bool) -> Room:
    used_vcpus, used_mem_mb = promised(node.id)
    return Room(node.id, node.accepting, node.vcpus, node.mem_mb, node.vcpus - used_vcpus,
                node.mem_mb - used_mem_mb, _disk_room(node) if new_files else None)


def _disk_room(node: Node) -> DiskRoom | None:
    """What the node told last, less the memory of the boots that it had not begun by then: their
    files have not been made."""
    if node.disk_free_mb is None:
        return None
    begun_since = Operation.started_at.is_null() | (Operation.started_at > node.heartbeat_at)
    coming = (
        Sandbox.select(peewee.fn.COALESCE(peewee.fn.SUM(Sandbox.mem_mb), 0))
        .join(Operation, on=(Operation.sandbox_id == Sandbox.id))
        .where((Sandbox.node_id == node.id) & Operation.state.in_(OPEN_STATES) & begun_since
               & Operation.kind.in_((OperationKind.BOOT, OperationKind.WAKE)))
        .scalar()
    )
    return DiskRoom(node.disk_free_mb - int(coming), node.disk_floor_mb)


def promised(node_id: str) -> tuple[int, int]:
    """vCPUs and MiB of a node that belong to sandboxes which run there, or are about to."""
    row = (
        Sandbox.select(
            peewee.fn.COALESCE(peewee.fn.SUM(Sandbox.vcpus), 0),
            peewee.fn.COALESCE(peewee.fn.SUM(Sandbox.mem_mb), 0),
        )
        .where(
            (Sandbox.node_id == node_id) & (Sandbox.status != SandboxStatus.STOPPED) & _occupying()
        )
        .tuples()
        .get()
    )
    return int(row[0]), int(row[1])


def _by_load(settings: Settings) -> list[str]:
    free = peewee.fn.COALESCE(peewee.fn.SUM(Sandbox.mem_mb), 0)
    rows = (
        Node.select(Node.id)
        .join(
            Sandbox, peewee.JOIN.LEFT_OUTER,
            on=(Sandbox.node_id == Node.id)
            & (Sandbox.status != SandboxStatus.STOPPED)
            & _occupying(),
        )
        .where(Node.accepting & _alive(settings))
        .group_by(Node.id)
        .order_by((Node.mem_mb - free).desc(), Node.id)
    )
    return [row.id for row in rows]
