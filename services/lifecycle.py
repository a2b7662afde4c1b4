"""Hibernate, wake, snapshot, fork, extend and delete: each begins an operation and waits on the row for its end."""
from dataclasses import asdict
from datetime import timedelta

from models.base import ROW_LOCK, connection, database, new_id
from models.nodes import Node, PortBinding
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, OperationState, SandboxStatus, SnapshotState
from models.users import User
from services import idempotency, operations, outbox, placement, sandboxes
from services.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable, WrongNode
from services.plans import check_fork
from services.protocols import Deps
from services.sandboxes import LaunchOptions
from services.transitions import TRANSITIONS, describe
from services.views import SandboxView, SnapshotView, sandbox_view, snapshot_view
from services.waits import wait_until

FORK_ROUTE = "sandboxes.fork"
_FINAL = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.SUPERSEDED)


def hibernate(deps: Deps, owner: User, sandbox_id: str, *, pinned_node: str | None = None) -> SandboxView:
    """Put a running sandbox to sleep; returns once it is `hibernated`. Raises Conflict, Unavailable."""
    return _change(deps, owner, sandbox_id, OperationKind.HIBERNATE, pinned_node)


def wake(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    *,
    ports: tuple[int, ...] = (),
    readiness_port: int | None = None,
    pinned_node: str | None = None,
) -> SandboxView:
    """Resume a hibernated sandbox under the same id; returns once it is `running`. Raises Conflict, Unavailable.

    New `ports` and `readiness_port` become part of the sandbox's wake spec.
    """
    return _change(deps, owner, sandbox_id, OperationKind.WAKE, pinned_node, ports, readiness_port)


def delete(deps: Deps, owner: User, sandbox_id: str, *, pinned_node: str | None = None) -> SandboxView:
    """Tear a sandbox down, whatever it is doing; returns once it is `stopped`. Deleting twice is no error."""
    return _change(deps, owner, sandbox_id, OperationKind.STOP, pinned_node)


def extend(
    owner: User, sandbox_id: str, timeout: int | None, *, pinned_node: str | None = None
) -> SandboxView:
    """Restart the idle clock, with a new idle timeout in seconds if given; raises Conflict when stopped."""
    with connection(), database.atomic():
        sandbox = sandboxes.check_owned(owner, operations.lock_sandbox(sandbox_id), sandbox_id, pinned_node)
        if sandbox.status == SandboxStatus.STOPPED:
            raise Conflict("The sandbox is stopped; its idle timeout cannot be extended.")
        seconds = timeout or sandbox.idle_timeout_s
        Sandbox.update(idle_timeout_s=seconds, **sandboxes.touch_values(seconds)).where(
            Sandbox.id == sandbox_id
        ).execute()
        return sandbox_view(sandbox)


def _change(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    kind: OperationKind,
    pinned_node: str | None,
    ports: tuple[int, ...] = (),
    readiness_port: int | None = None,
) -> SandboxView:
    """Bring the sandbox to where `kind` leads.

    1. If it is there already: done. 2. If the same operation is under way: join it. 3. If another one is: wait for its
    end and look again (a wake right after a pause must work). 4. Otherwise begin it and wait for its end.
    Ports that are not bound yet need an operation of their own: with them, 1 and 2 do not count.
    """
    timeout_s = deps.settings.operation_wait_s
    sandboxes.get_owned(owner, sandbox_id, pinned_node=pinned_node)

    def attempt() -> int | str | None:
        with database.atomic():
            sandbox = operations.lock_sandbox(sandbox_id)
            assert sandbox is not None
            there = sandbox.task is None and SandboxStatus(sandbox.status) in TRANSITIONS[kind].already
            more = _has_more_ports(sandbox, ports)
            if there and not more:
                _set_launch(sandbox, (), readiness_port)
                return "already there"
            if sandbox.task == kind.value and not more:
                return int(sandbox.op_seq)
            if sandbox.task is not None and kind is not OperationKind.STOP:
                _check_booted(sandbox, kind)
                return None
            if kind is OperationKind.WAKE and sandbox.status == SandboxStatus.HIBERNATED:
                placement.claim_capacity(deps.settings, sandbox)
            _set_launch(sandbox, ports, readiness_port)
            # A wake of a running machine resumes nothing; it has the driver forward the new ports.
            operation, messages = operations.begin(deps.settings, sandbox, kind, from_any=there)
        outbox.flush(deps.queue, messages)
        return int(operation.op_seq)

    found = wait_until(sandbox_id, attempt, timeout_s)
    if found is None:
        raise _still_busy(sandbox_id)
    if isinstance(found, int):
        wait_for_operation(deps, sandbox_id, found)
    return sandboxes.get_view(owner, sandbox_id)


def _check_booted(sandbox: Sandbox, kind: OperationKind) -> None:
    """Waiting for a boot is for those who want it to run; everything else is refused, with the state (our choice)."""
    if sandbox.status == SandboxStatus.PROVISIONING and kind is not OperationKind.WAKE:
        raise Conflict(f"The sandbox is {sandbox.status}; {kind.value} is not possible in that state.")


def _has_more_ports(sandbox: Sandbox, ports: tuple[int, ...]) -> bool:
    bound = PortBinding.select(PortBinding.guest_port).where(PortBinding.sandbox_id == sandbox.id)
    return bool(set(ports) - {row.guest_port for row in bound}) if ports else False


def _set_launch(sandbox: Sandbox, ports: tuple[int, ...], readiness_port: int | None) -> None:
    if ports:
        node = Node.select().where(Node.id == sandbox.node_id).for_update(ROW_LOCK).get()
        placement.bind_ports(node, sandbox.id, ports)
    if readiness_port is not None:
        Sandbox.update(readiness_port=readiness_port).where(Sandbox.id == sandbox.id).execute()


def _still_busy(sandbox_id: str) -> Unavailable:
    with connection():
        sandbox = Sandbox.get_by_id(sandbox_id)
    return Unavailable(
        f"The sandbox is still {describe(sandbox.status, sandbox.task)}; the operation goes on, ask again later.",
        retry_after_s=5,
    )


def wait_for_operation(deps: Deps, sandbox_id: str, op_seq: int) -> Operation:
    """Wait for the end of an operation; raises Unavailable if it failed or goes on too long, Conflict if superseded."""

    def probe() -> Operation | None:
        return Operation.get_or_none(
            (Operation.sandbox_id == sandbox_id) & (Operation.op_seq == op_seq) & Operation.state.in_(_FINAL)
        )

    operation = wait_until(sandbox_id, probe, deps.settings.operation_wait_s)
    if operation is None:
        raise _still_busy(sandbox_id)
    if operation.state == OperationState.SUPERSEDED:
        raise Conflict("The sandbox was deleted meanwhile.")
    if operation.state == OperationState.FAILED:
        raise Unavailable(operation.error or "The operation failed.")
    return operation


def snapshot(
    deps: Deps, owner: User, sandbox_id: str, *, idempotency_key: str | None = None, pinned_node: str | None = None
) -> SnapshotView:
    """Capture a running or hibernated sandbox, which stays what it is; returns once the snapshot is durable on its
    node.

    The same key for the same sandbox returns the original snapshot, even when the sandbox is gone. Raises Conflict,
    Unavailable.
    """
    sandboxes.get_owned(owner, sandbox_id, pinned_node=pinned_node)
    route = f"sandboxes.snapshot:{sandbox_id}"

    def attempt() -> str | None:
        with database.atomic() as transaction:
            sandbox = operations.lock_sandbox(sandbox_id)
            assert sandbox is not None
            snapshot_id = new_id("snap")
            if idempotency_key:
                known = idempotency.reserve(
                    owner.id,
                    route,
                    idempotency_key,
                    body_hash="",
                    resource_id=snapshot_id,
                    lifetime=timedelta(hours=deps.settings.idempotency_hours),
                )
                if not known.first:
                    return known.resource_id
            if sandbox.task is not None and sandbox.task != OperationKind.STOP:
                _check_booted(sandbox, OperationKind.SNAPSHOT)
                # The key must not stay reserved for a capture that was not begun.
                transaction.rollback()
                return None
            _, messages = _begin_capture(deps, sandbox, snapshot_id, transient=False)
        outbox.flush(deps.queue, messages)
        return snapshot_id

    snapshot_id = wait_until(sandbox_id, attempt, deps.settings.operation_wait_s)
    if snapshot_id is None:
        raise _still_busy(sandbox_id)
    return _await_snapshot(deps, sandbox_id, snapshot_id, route)


def _await_snapshot(deps: Deps, sandbox_id: str, snapshot_id: str, route: str) -> SnapshotView:
    def probe() -> Snapshot | None:
        return Snapshot.get_or_none((Snapshot.id == snapshot_id) & (Snapshot.state != SnapshotState.PENDING))

    row = wait_until(sandbox_id, probe, deps.settings.operation_wait_s)
    if row is None:
        raise _still_busy(sandbox_id)
    if row.state == SnapshotState.FAILED:
        with connection():
            idempotency.release(route, snapshot_id)
            deleted = Operation.select().where(
                (Operation.snapshot_id == snapshot_id) & (Operation.state == OperationState.SUPERSEDED)
            )
            if deleted.exists():
                raise Conflict(row.error or "The sandbox was deleted meanwhile.")
        raise Unavailable(row.error or "The snapshot could not be captured.")
    return snapshot_view(row)


def _begin_capture(
    deps: Deps, sandbox: Sandbox, snapshot_id: str, *, transient: bool
) -> tuple[Operation, list[OutboxMessage]]:
    Snapshot.create(
        id=snapshot_id,
        owner=sandbox.owner_id,
        node_id=sandbox.node_id,
        source_sandbox_id=sandbox.id,
        transient=transient,
        vcpus=sandbox.vcpus,
        mem_mb=sandbox.mem_mb,
        cwd=sandbox.cwd,
    )
    return operations.begin(deps.settings, sandbox, OperationKind.SNAPSHOT, snapshot_id=snapshot_id)


def fork_sandbox(
    deps: Deps, owner: User, sandbox_id: str, options: LaunchOptions, *, pinned_node: str | None = None
) -> SandboxView:
    """Fork a running or hibernated sandbox, which goes on undisturbed; returns at once with the new sandbox.

    The capture and the boot are two operations: the boot waits for the capture and fails with it.
    """
    check_launch(options)
    sandboxes.get_owned(owner, sandbox_id, pinned_node=pinned_node)

    def attempt() -> SandboxView | None:
        with database.atomic():
            source = operations.lock_sandbox(sandbox_id)
            assert source is not None
            if source.task is not None and source.task != OperationKind.STOP:
                _check_booted(source, OperationKind.SNAPSHOT)
                return None
            capture, messages = _begin_capture(deps, source, new_id("snap"), transient=True)
            taken = Snapshot.get_by_id(capture.snapshot_id)
            fork = _insert_fork(deps, owner, new_id(), taken, options, inherit=source)
            sandboxes.start_boot(deps, fork, snapshot=taken, after=capture)
            view = sandbox_view(fork)
        outbox.flush(deps.queue, messages)
        return view

    view = wait_until(sandbox_id, attempt, deps.settings.operation_wait_s)
    if view is None:
        raise _still_busy(sandbox_id)
    return view


def fork_snapshot(
    deps: Deps,
    owner: User,
    snapshot_id: str,
    options: LaunchOptions,
    *,
    idempotency_key: str | None = None,
    pinned_node: str | None = None,
) -> SandboxView:
    """Start a new sandbox from a snapshot the owner owns, on the node that holds it (contract, Fork rules 1 to 4).

    A replay of the key returns the first response and makes no second VM. Raises NotFound, Forbidden, Conflict,
    PlanRequired, WrongNode, Unavailable.
    """
    check_launch(options)
    with connection():
        with database.atomic():
            taken = _get_owned_snapshot(owner, snapshot_id)
            if pinned_node is not None and taken.node_id != pinned_node:
                raise WrongNode(f"Snapshot {snapshot_id} is on node {taken.node_id}, not on {pinned_node}.")
            sandbox_id = new_id()
            if idempotency_key:
                known = idempotency.reserve(
                    owner.id,
                    FORK_ROUTE,
                    idempotency_key,
                    body_hash=idempotency.request_hash({"snapshot_id": snapshot_id, **asdict(options)}),
                    resource_id=sandbox_id,
                    lifetime=timedelta(hours=deps.settings.idempotency_hours),
                )
                if not known.first:
                    return sandboxes.replayed(known)
            if taken.state != SnapshotState.READY:
                raise Conflict(f"The snapshot is {taken.state}; only a ready one can be forked.")
            fork = _insert_fork(deps, owner, sandbox_id, taken, options)
            messages = sandboxes.start_boot(deps, fork, snapshot=taken)
            view = sandbox_view(fork)
            if idempotency_key:
                idempotency.store_response(owner.id, FORK_ROUTE, idempotency_key, view.to_json())
        outbox.flush(deps.queue, messages)
    return view


def check_launch(options: LaunchOptions) -> None:
    """Contract, Fork rule 4: a start command needs a readiness port, which must be among the ports."""
    if options.start_command is not None and options.readiness_port is None:
        raise InvalidRequest("startCommand needs a readinessPort")
    if options.start_command is not None and options.readiness_port not in options.ports:
        raise InvalidRequest("readinessPort must also be in ports")


def _get_owned_snapshot(owner: User, snapshot_id: str) -> Snapshot:
    row = Snapshot.get_or_none((Snapshot.id == snapshot_id) & (Snapshot.state != SnapshotState.DELETED))
    if row is None:
        raise NotFound(f"There is no snapshot {snapshot_id}.")
    source_owner = Sandbox.select(Sandbox.owner).where(Sandbox.id == row.source_sandbox_id).scalar()
    if row.owner_id != owner.id or source_owner != owner.id:
        raise Forbidden("This snapshot belongs to another account.")
    return row


def _insert_fork(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    taken: Snapshot,
    options: LaunchOptions,
    inherit: Sandbox | None = None,
) -> Sandbox:
    check_fork(owner.plan, taken.vcpus, taken.mem_mb)
    node = placement.claim_node(deps.settings, taken.vcpus, taken.mem_mb, taken.node_id)
    fork = sandboxes.insert(deps, owner, sandbox_id, node, taken.vcpus, taken.mem_mb, options)
    source = inherit or Sandbox.get_by_id(taken.source_sandbox_id)
    # A fork is the same computer: what the source's commands saw in their environment, the fork's see too.
    Sandbox.update(snapshot_id=taken.id, cwd=taken.cwd, env=source.env | options.env).where(
        Sandbox.id == fork.id
    ).execute()
    fork.cwd = taken.cwd
    return fork
