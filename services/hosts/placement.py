"""Which VM host takes a sandbox, and the claim on its capacity.

Everything here runs in the caller's transaction. The node row is locked before its load is summed,
so parallel claims on one node are serial and never promise more than there is; nothing is counted
in a column that could drift.
"""
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from models.database import ROW_LOCK, connection, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OPEN_STATES, OperationKind, SandboxStatus, SnapshotKind
from services.errors import WrongNode
from services.hosts.capacity import DiskRoom, Room, refusal
from services.hosts.nodes import SANDBOX_LANE
from services.hosts.ports import move_agent_port


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
    move_agent_port(settings, node, sandbox)


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
