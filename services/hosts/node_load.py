"""What of a node is taken: by the machines that run there or are about to, and by files that these
have yet to write.

It is summed up from the rows of the sandboxes each time; nothing is counted in a column that could
drift.
"""
import math
from typing import Any

import peewee

from models.nodes import Node
from models.operations import Operation
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import OPEN_STATES, OperationKind, SandboxStatus
from models.usage import SandboxUsage
from services.hosts.capacity import Load, Promise
from services.hosts.disk_room import DiskRoom
from services.hosts.nodes import NodeFacts


def read_load(node_id: str) -> Load:
    """What belongs to sandboxes that run on a node, or are about to, and what CPU they use."""
    row = _LOAD.find(node_id)
    return Load(int(row.vcpus), int(row.mem_mb), int(row.cpu_permille))


def promise_of(node: Node | NodeFacts) -> Promise:
    """What the node says it may promise, by its row or by its own words."""
    return Promise(node.vcpus, node.mem_mb, node.cpus, node.oversell, node.memory_is_scarce)


def read_disk_room(node: Node, load: Load) -> DiskRoom | None:
    """What the node told last, less what the boots take that it had not begun by then: their files
    have not been made. `load` counts these boots too. None of a node that tells nothing of its
    disk."""
    if node.disk_free_mb is None:
        return None
    coming_mb = int(_COMING.find(node.id, node.heartbeat_at).mem_mb)
    whole_mb = min(max(node.mem_mb - (load.mem_mb - coming_mb), 0), coming_mb)
    taken_mb = whole_mb + math.ceil((coming_mb - whole_mb) * node.ram_share)
    return DiskRoom(node.disk_free_mb - taken_mb, node.disk_floor_mb,
                    max(node.mem_mb - load.mem_mb, 0), node.ram_share)


def occupying() -> Any:
    """The condition on sandboxes whose machines run, or are about to, or are not asleep yet."""
    return (Sandbox.status != SandboxStatus.STOPPED) & (
        Sandbox.status.in_((SandboxStatus.PROVISIONING, SandboxStatus.RUNNING))
        | Sandbox.task.in_((OperationKind.WAKE, OperationKind.HIBERNATE))
    )


def _sum(column: peewee.Field) -> Any:
    return peewee.fn.COALESCE(peewee.fn.SUM(column), 0).alias(column.name)


def _load(node_id: Any) -> Any:
    sums = Sandbox.select(_sum(Sandbox.vcpus), _sum(Sandbox.mem_mb),
                          _sum(SandboxUsage.cpu_permille))
    return sums.left_outer_join(SandboxUsage, on=SandboxUsage.sandbox_id == Sandbox.id).where(
        (Sandbox.node_id == node_id) & occupying())


def _coming(node_id: Any, heartbeat_at: Any) -> Any:
    begun_since = Operation.started_at.is_null() | (Operation.started_at > heartbeat_at)
    return Sandbox.select(_sum(Sandbox.mem_mb)).join(
        Operation, on=(Operation.sandbox_id == Sandbox.id)
    ).where((Sandbox.node_id == node_id) & Operation.state.in_(OPEN_STATES) & begun_since
            & Operation.kind.in_((OperationKind.BOOT, OperationKind.WAKE)))


_LOAD = Statement(Sandbox, _load)
_COMING = Statement(Sandbox, _coming, values=2)
