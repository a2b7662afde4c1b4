"""What an operator sees of nodes, operations and sandboxes: fields chosen one by one, so that none
is a secret."""
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import peewee

from config.settings import Settings
from models.database import connection
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.states import OPEN_STATES, OperationState, Plan, SandboxStatus, WarmImageState
from services.accounts import users
from services.hosts import nodes, warm_images
from services.hosts.node_load import promise_of, read_load
from services.metering.plans import PLAN_SIZES, SIZES, Size, size_name

# By the clock that the heartbeats have.
_SILENT_S = peewee.fn.date_part("epoch", peewee.fn.now() - Node.heartbeat_at)


@dataclass(frozen=True)
class NodeReport:
    """A VM host. `vcpus` and `mem_mb` are what it has to promise, `most_*` what it may promise at
    present, `used_*` what it has promised; `used_cpus` is what its machines use of its real ones.
    `warm_sizes` are those with a warm image, which a create restores; `lanes` are those that work,
    None if it does not tell. Of its disk (MiB) `disk_free_mb` are free; below `disk_floor_mb` the
    host takes nothing new. `stopped_machines` stand ready for a wake (`kept`) or a create
    (`spares`), or are processes that have no machine yet (`prepared`). Until
    `draining_until`, if that is set, it is closed whether or not it is `accepting`.
    `policy_restored_at` is when it last found its packet policy changed by somebody else."""

    id: str
    address: str
    alive: bool
    accepting: bool
    draining_until: datetime | None
    silent_s: float
    used_vcpus: int
    vcpus: int
    most_vcpus: int
    used_mem_mb: int
    mem_mb: int
    most_mem_mb: int
    used_cpus: float
    disk_free_mb: int | None
    disk_floor_mb: int
    disk_mb: int | None
    sandboxes: dict[str, int]
    stopped_machines: dict[str, int]
    warm_sizes: list[str]
    lanes: list[str] | None
    host_tuple: dict[str, str]
    policy_restored_at: datetime | None
    started_at: datetime


@dataclass(frozen=True)
class OperationReport:
    """An operation. `number` counts those of its sandbox; `holder` is the worker that has it until
    `lease_until`."""

    id: int
    sandbox_id: str
    number: int
    kind: str
    state: str
    node_id: str
    attempts: int
    holder: str | None
    lease_until: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime
    after_id: int | None
    snapshot_id: str | None
    requested_by: str | None
    note: str | None
    error: str | None
    operator_error: str | None


@dataclass(frozen=True)
class SandboxReport:
    """A sandbox of an owner; `task` is the operation under way, `note` what an operator should
    know."""

    id: str
    status: str
    task: str | None
    node_id: str
    size: str
    vcpus: int
    mem_mb: int
    created_at: datetime
    last_active_at: datetime
    idle_at: datetime | None
    cold_boots: int
    note: str | None
    error: str | None


@dataclass(frozen=True)
class PlanReport:
    """A plan and the machines it includes, the default first; none for a plan that may create
    nothing."""

    plan: str
    sizes: list[Size]


@dataclass(frozen=True)
class OperationFilter:
    """Which operations are meant; unset means any. `before` is an id: only older ones, for the next
    page."""

    sandbox_id: str | None = None
    node_id: str | None = None
    only_open: bool = False
    only_failed: bool = False
    before: int | None = None


def list_nodes(settings: Settings) -> list[NodeReport]:
    """Every node that ever reported, by id."""
    with connection():
        alive = set(nodes.list_alive(settings))
        rows = Node.select(Node, _SILENT_S.alias("silent_s")).order_by(Node.id)
        return [_node(node, node.id in alive) for node in rows]


def _node(node: Node, alive: bool) -> NodeReport:
    load, promise = read_load(node.id), promise_of(node)
    counts = (
        Sandbox.select(Sandbox.status, peewee.fn.COUNT(Sandbox.id))
        .where((Sandbox.node_id == node.id) & (Sandbox.status != SandboxStatus.STOPPED))
        .group_by(Sandbox.status)
        .tuples()
    )
    current = node.host_tuple.get("image", "")
    warm_sizes = [size_name(view.vcpus, view.mem_mb) for view in warm_images.list_all(node.id)
                  if view.state is WarmImageState.BAKED and view.image == current
                  and not view.presets]
    return NodeReport(
        id=node.id, address=node.address, alive=alive, accepting=node.accepting,
        draining_until=node.draining_until if nodes.is_draining(node) else None,
        silent_s=round(node.silent_s, 1),
        used_vcpus=load.vcpus, vcpus=node.vcpus, most_vcpus=promise.most_vcpus(load),
        used_mem_mb=load.mem_mb, mem_mb=node.mem_mb, most_mem_mb=promise.most_mem_mb(),
        used_cpus=round(load.cpu_permille / 1000, 2),
        disk_free_mb=node.disk_free_mb, disk_floor_mb=node.disk_floor_mb, disk_mb=node.disk_mb,
        sandboxes=dict(counts), stopped_machines=node.stopped_machines, warm_sizes=warm_sizes,
        lanes=node.lanes, host_tuple=node.host_tuple, policy_restored_at=node.policy_restored_at,
        started_at=node.started_at,
    )


def list_operations(wanted: OperationFilter, limit: int) -> list[OperationReport]:
    """The newest `limit` operations among those wanted."""
    conditions: list[Any] = [True]
    if wanted.sandbox_id is not None:
        conditions.append(Operation.sandbox_id == wanted.sandbox_id)
    if wanted.node_id is not None:
        conditions.append(Operation.node_id == wanted.node_id)
    if wanted.only_open:
        conditions.append(Operation.state.in_(OPEN_STATES))
    if wanted.only_failed:
        conditions.append(Operation.state == OperationState.FAILED)
    if wanted.before is not None:
        conditions.append(Operation.id < wanted.before)
    with connection():
        rows = Operation.select().where(*conditions).order_by(Operation.id.desc()).limit(limit)
        return [operation_report(row) for row in rows]


def operation_report(row: Operation) -> OperationReport:
    """An operation as operators see it."""
    return OperationReport(
        id=row.id, sandbox_id=row.sandbox_id, number=row.op_seq, kind=row.kind, state=row.state,
        node_id=row.node_id, attempts=row.attempts,
        holder=row.claimed_by if row.state == OperationState.RUNNING else None,
        lease_until=row.lease_until, created_at=row.created_at, started_at=row.started_at,
        finished_at=row.finished_at, deadline_at=row.deadline_at, after_id=row.after_id,
        snapshot_id=row.snapshot_id, requested_by=row.requested_by, note=row.note, error=row.error,
        operator_error=row.operator_error,
    )


def list_sandboxes(account: str, *, status: str | None = None, stopped_too: bool = False,
                   limit: int = 100, offset: int = 0) -> list[SandboxReport]:
    """A page of an owner's sandboxes, newest first, without the stopped ones unless asked for.
    `account` is its address or id. Raises NotFound."""
    owner = users.get_named(account)
    which = Sandbox.owner == owner.id
    if status is not None:
        which &= Sandbox.status == status
    elif not stopped_too:
        which &= Sandbox.status != SandboxStatus.STOPPED
    with connection():
        rows = Sandbox.select().where(which).order_by(Sandbox.created_at.desc(), Sandbox.id.desc())
        return [sandbox_report(row) for row in rows.limit(limit).offset(offset)]


def sandbox_report(row: Sandbox) -> SandboxReport:
    """A sandbox as operators see it."""
    return SandboxReport(
        id=row.id, status=row.status, task=row.task, node_id=row.node_id,
        size=size_name(row.vcpus, row.mem_mb), vcpus=row.vcpus, mem_mb=row.mem_mb,
        created_at=row.created_at, last_active_at=row.last_active_at, idle_at=row.idle_at,
        cold_boots=row.cold_boots, note=row.operator_note, error=row.error,
    )


def list_plans() -> list[PlanReport]:
    """Every plan there is."""
    return [
        PlanReport(plan.value, [SIZES[name] for name in PLAN_SIZES.get(plan, ())]) for plan in Plan
    ]
