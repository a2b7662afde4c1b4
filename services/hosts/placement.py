"""Which VM host takes a sandbox, and the claim on its capacity.

Everything here runs in the caller's transaction. The node row is locked before its load is summed
(`services/hosts/node_load.py`), so parallel claims on one node are serial and never promise more
than there is.
"""
from collections.abc import Callable
from functools import cache
from typing import Any

import peewee

from config.settings import Settings
from models.database import ROW_LOCK, connection, database
from models.nodes import Node
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import Lane
from services.errors import WrongNode
from services.hosts import nodes
from services.hosts.capacity import Room, refusal
from services.hosts.node_load import occupying, promise_of, read_disk_room, read_load
from services.hosts.nodes import SANDBOX_LANE
from services.hosts.port_room import PortsWanted, find_shortage
from services.hosts.sandbox_ports import move_agent_port
from services.operations.reporting_nodes import reports, works


def claim_node(settings: Settings, vcpus: int, mem_mb: int, pinned: str | None = None, *,
               new_files: bool = True, preset: str | None = None,
               image: str | None = None, lane: Lane = SANDBOX_LANE,
               ports: PortsWanted = PortsWanted(), even_closed: bool = False) -> Node:
    """Lock and return a live node that has room; the least loaded first, or exactly `pinned`.

    Without `new_files` its disk and `ports` do not matter: the machine has them there already. With
    a `preset` only the nodes that have it count, unless there is none. Nodes that have the `image`
    come first; others have to fetch it. The `lane` that is to boot it works. With `even_closed` the
    pinned one may be closed by an operator, but not be about to go down.
    Raises WrongNode when `pinned` does not exist, Unavailable when no node has room; its text says
    what is short.
    """
    asked, wanted = _alive(settings) & works(lane), ports if new_files else None
    if pinned is not None:
        asked &= Node.id == pinned
    elif preset is not None:
        # By their ids: what they have may change before they are looked at again.
        have_it = [node.id for node in Node.select(Node.id).where(
            asked & nodes.are_open() & Node.presets.contains([preset]))]
        asked = asked & Node.id.in_(have_it) if have_it else asked

    def lock_if_room(node_id: str) -> Node | None:
        node = _locking(lane).find(node_id, settings.node_dead_after_s)
        if node is None:
            return None
        room = _room(settings, node, wanted, even_closed=even_closed)
        return node if room.is_open and room.can_hold(vcpus, mem_mb) else None

    found = _first_of([pinned] if pinned is not None else _by_load(asked, image), lock_if_room)
    if found is not None:
        return found
    if pinned is not None and not Node.select().where(Node.id == pinned).exists():
        raise WrongNode(f"There is no node {pinned}.")
    rooms = [_room(settings, node, wanted, even_closed=even_closed)
             for node in Node.select().where(asked)]
    raise refusal(vcpus, mem_mb, rooms, pinned)


def _first_of(node_ids: list[str], lock_if_room: Callable[[str], Node | None]) -> Node | None:
    """The first that has room, locked. No other is: two claims that meet the same full nodes in
    another order would each wait for what the other holds."""
    if len(node_ids) == 1:
        return lock_if_room(node_ids[0])
    for node_id in node_ids:
        with database.atomic() as look:
            node = lock_if_room(node_id)
            if node is not None:
                return node
            look.rollback()
    return None


def check_disk(node_id: str) -> None:
    """Raises Unavailable if the node's disk is below its floor: what writes new files is not begun
    there."""
    with connection():
        node = Node.find_by_id(node_id)
        room = read_disk_room(node, read_load(node.id)) if node is not None else None
    refused = room.refusal(node_id) if room is not None else None
    if refused is not None:
        raise refused


def is_open(settings: Settings, node_id: str) -> bool:
    """True if the node reports that it works, and takes sandboxes as long as it has room."""
    return bool(Node.select().where((Node.id == node_id) & _alive(settings)
                                    & nodes.are_open()).exists())


def claim_capacity(settings: Settings, sandbox: Sandbox, *, even_closed: bool = False) -> None:
    """Make sure that the node of a sleeping sandbox has room to run it, and that its agent has a
    port of the node's range for agents; raises Unavailable."""
    node = claim_node(settings, sandbox.vcpus, sandbox.mem_mb, sandbox.node_id, new_files=False,
                      even_closed=even_closed)
    move_agent_port(settings, node, sandbox)


def _alive(settings: Settings) -> Any:
    """Nodes that report, and whose lane for sandboxes has started."""
    return reports(settings.node_dead_after_s) & works(SANDBOX_LANE)


def _room(settings: Settings, node: Node, wanted: PortsWanted | None, *,
          even_closed: bool = False) -> Room:
    """What is free on a node; of its disk and its host ports only for a machine that is to have
    `wanted` ports there."""
    load, promise = read_load(node.id), promise_of(node)
    is_open = not nodes.is_draining(node) if even_closed else nodes.is_open(node)
    return Room(node.id, is_open, node.vcpus, node.mem_mb,
                promise.most_vcpus(load) - load.vcpus, promise.most_mem_mb() - load.mem_mb,
                read_disk_room(node, load) if wanted is not None else None, promise.held_back(load),
                find_shortage(settings, node, wanted) if wanted is not None else "")


@cache
def _locking(lane: Lane) -> Statement:
    """The node of an id, locked, if it is alive and this lane of it works."""
    return Statement(Node, lambda node_id, within_s: Node.select().where(
        (Node.id == node_id) & reports(within_s) & works(SANDBOX_LANE) & works(lane)
    ).for_update(ROW_LOCK), values=2)


def list_by_load(settings: Settings) -> list[str]:
    """The nodes that may be given something, the one with most free memory first."""
    return _by_load(_alive(settings))


def list_with_room(settings: Settings, vcpus: int, mem_mb: int, lane: Lane,
                   image: str | None = None) -> list[str]:
    """The nodes at present that could take a new machine and whose `lane` works too, those that
    have the `image` and then the one with most free memory first. It is no claim."""
    at_work = _alive(settings) & works(lane)
    order = _by_load(at_work, image)
    found = {node.id: node for node in Node.select().where(Node.id.in_(order))}
    return [each for each in order
            if _room(settings, found[each], PortsWanted()).can_hold(vcpus, mem_mb)]


def find_silence(settings: Settings, node_id: str, lane: Lane) -> str | None:
    """That the node does not report, or its `lane` does not work; None if both do."""
    at_work = _alive(settings) & works(lane)
    if Node.select().where((Node.id == node_id) & at_work).exists():
        return None
    return f"Node {node_id} does not report that it works at present."


def find_refusal(node_id: str, mem_mb: int) -> str | None:
    """Why a node should not go on with what takes `mem_mb` of its disk: it is closed or
    being drained, or short of disk space. None if nothing speaks against it."""
    node = Node.get_by_id(node_id)
    if not nodes.is_open(node):
        return f"Node {node_id} is {'being drained' if node.accepting else 'closed'}."
    room = read_disk_room(node, read_load(node_id))
    short = room.refusal(node_id, mem_mb) if room is not None else None
    return str(short) if short is not None else None


def _by_load(asked: Any, image: str | None = None) -> list[str]:
    free = peewee.fn.COALESCE(peewee.fn.SUM(Sandbox.mem_mb), 0)
    have_it = () if image is None else (Node.images.contains([image]).desc(),)
    rows = (
        Node.select(Node.id)
        .join(
            Sandbox, peewee.JOIN.LEFT_OUTER,
            on=(Sandbox.node_id == Node.id) & occupying(),
        )
        .where(nodes.are_open() & asked)
        .group_by(Node.id)
        .order_by(*have_it, (Node.mem_mb - free).desc(), Node.id)
    )
    return [row.id for row in rows]
