"""VM hosts as the control plane sees them: they describe themselves with every heartbeat."""
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from models.database import connection, database, now
from models.nodes import Node
from models.states import Lane
from services.operations.reporting_nodes import reporting_ids


@dataclass(frozen=True)
class NodeFacts:
    """What a node says about itself; `vcpus` and `mem_mb` are what it may promise, overcommit
    included, and `oversell` how many times that much while its machines use little of its `cpus`
    and its memory is not scarce; of the memory of machines beyond `mem_mb` it keeps `ram_share`
    free on its disk. Of that `disk_free_mb` are free, of which `disk_floor_mb` are to stay so.
    `presets` are the agent presets it can make ready, `images` the builds of guest images it
    has."""

    id: str
    address: str
    vcpus: int
    mem_mb: int
    host_port_low: int
    host_port_high: int
    host_tuple: dict[str, str]
    disk_mb: int | None = None
    disk_free_mb: int | None = None
    disk_floor_mb: int = 0
    agent_port_low: int | None = None
    agent_port_high: int | None = None
    presets: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    cpus: int | None = None
    oversell: float = 1.0
    ram_share: float = 1.0
    memory_is_scarce: bool = False


# The lane that makes, wakes and ends sandboxes: without it a node can be given none.
SANDBOX_LANE = Lane.OPS


def heartbeat(facts: NodeFacts, lanes: Collection[str] | None = None, *,
              started: bool = False) -> float:
    """Write what the node says and that it lives; `lanes` are those of its lanes that work,
    `started` also marks the start of its worker, which ends a drain.

    Returns by how many seconds at least this host's clock is ahead of the database's, which is the
    one that counts here; less than 0 if it is behind, 0 if it may be the same.
    """
    values = {
        "address": facts.address,
        "vcpus": facts.vcpus,
        "mem_mb": facts.mem_mb,
        "cpus": facts.cpus,
        "oversell": facts.oversell,
        "ram_share": facts.ram_share,
        "memory_is_scarce": facts.memory_is_scarce,
        "host_port_low": facts.host_port_low,
        "host_port_high": facts.host_port_high,
        "host_tuple": facts.host_tuple,
        "agent_port_low": facts.agent_port_low,
        "agent_port_high": facts.agent_port_high,
        "disk_mb": facts.disk_mb,
        "disk_free_mb": facts.disk_free_mb,
        "disk_floor_mb": facts.disk_floor_mb,
        "presets": sorted(facts.presets),
        "images": sorted(facts.images),
        "lanes": None if lanes is None else sorted(lanes),
        "heartbeat_at": peewee.fn.now(),
    }
    if started:
        values |= {"started_at": values["heartbeat_at"], "draining_until": None}
    written = Node.insert(id=facts.id, **values).on_conflict(
        conflict_target=[Node.id], update=values).returning(peewee.fn.clock_timestamp())
    with connection(), database.atomic():
        asked_at = now()
        moment = written.tuples().execute()[0][0]
        answered_at = now()
    # The database looked at its clock at some time in between.
    return (max((asked_at - moment).total_seconds(), 0.0)
            + min((answered_at - moment).total_seconds(), 0.0))


def policy_restored(node_id: str) -> None:
    """Note that the node found its packet policy changed by somebody else, and loaded it again."""
    with connection():
        Node.update(policy_restored_at=now()).where(Node.id == node_id).execute()


def write_stopped_machines(node_id: str, counts: dict[str, int]) -> None:
    """Note how many machines stand stopped on the node, by what for."""
    with connection():
        Node.update(stopped_machines=counts).where(Node.id == node_id).execute()


def read_stopped_machines(node_id: str) -> dict[str, int]:
    """What `write_stopped_machines` noted last."""
    with connection():
        node = Node.find_by_id(node_id)
    return node.stopped_machines if node is not None else {}


def set_accepting(node_id: str, *, accepting: bool) -> bool:
    """Open or close a node for new sandboxes; who opens it ends a drain. False if there is no such
    node."""
    values = {"accepting": True, "draining_until": None} if accepting else {"accepting": False}
    with connection():
        return bool(Node.update(**values).where(Node.id == node_id).execute())


def begin_draining(node_id: str, seconds: float) -> None:
    """Close the node for so many seconds, beside what the operator has decided."""
    with connection():
        Node.update(draining_until=now() + timedelta(seconds=seconds)).where(
            Node.id == node_id).execute()


def end_draining(node_id: str) -> None:
    """Leave the node as open as the operator has decided."""
    with connection():
        Node.update(draining_until=None).where(Node.id == node_id).execute()


def are_open() -> Any:
    """The condition for nodes that take sandboxes as long as they have room."""
    return Node.accepting & (Node.draining_until.is_null() | (Node.draining_until <= now()))


def is_draining(node: Node) -> bool:
    """True while the node is closed because it is about to go down."""
    return node.draining_until is not None and node.draining_until > now()


def is_open(node: Node) -> bool:
    """True if the node takes sandboxes as long as it has room."""
    return node.accepting and not is_draining(node)


def find_directory_id(node_id: str) -> str | None:
    """The id of the directory that the node wrote to when it last started; None before its first
    start and after `forget_directory`."""
    with connection():
        found: str | None = Node.select(Node.directory_id).where(Node.id == node_id).scalar()
        return found


def set_directory_id(node_id: str, directory_id: str) -> None:
    """Remember the directory of a node that has none yet."""
    with connection():
        Node.update(directory_id=directory_id).where(
            (Node.id == node_id) & Node.directory_id.is_null()).execute()


def forget_directory(node_id: str) -> bool:
    """Let the node take whatever directory it finds at its next start, and end the sandboxes whose
    files are not in it; False if there is no such node."""
    with connection():
        return bool(Node.update(directory_id=None).where(Node.id == node_id).execute())


def list_alive(settings: Settings, lane: Lane | None = None) -> list[str]:
    """Ids of the nodes whose last heartbeat is fresh, and whose `lane` works if one is given."""
    with connection():
        alive = reporting_ids(settings.node_dead_after_s, lane)
        return [node.id for node in alive.order_by(Node.id)]
