"""Hibernate, wake, grow, extend and delete: each begins an operation and waits on the row for its
end."""
from models.database import ROW_LOCK, connection, database
from models.nodes import Node, PortBinding
from models.operations import Operation
from models.sandboxes import Sandbox
from models.states import OperationKind, OperationState, SandboxStatus
from models.users import User
from services.errors import Conflict, NotFound, Unavailable
from services.hosts import placement
from services.operations import outbox
from services.operations.begin import begin, lock_sandbox
from services.operations.transitions import TRANSITIONS, describe
from services.operations.waits import wait_until
from services.protocols import Deps
from services.sandboxes import create
from services.sandboxes.idle import touch_values
from services.sandboxes.outcomes import begin_stop
from services.sandboxes.views import SandboxView, sandbox_view

_FINAL = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.SUPERSEDED)


def hibernate(deps: Deps, owner: User, sandbox_id: str, *,
              pinned_node: str | None = None) -> SandboxView:
    """Put a running sandbox to sleep; returns once it is `hibernated`. Raises Conflict,
    Unavailable."""
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
    """Resume a hibernated sandbox under the same id; returns once it is `running`. Raises Conflict,
    Unavailable.

    New `ports` and `readiness_port` become part of the sandbox's wake spec. With a readiness port
    in it, whoever gave it, `running` means that something listens there.
    """
    return _change(deps, owner, sandbox_id, OperationKind.WAKE, pinned_node, ports, readiness_port)


def grow(deps: Deps, owner: User, sandbox_id: str, *, pinned_node: str | None = None) -> None:
    """Bring the disk under a running guest to the platform's floor; returns once it has grown.
    Raises Conflict, Unavailable."""
    _change(deps, owner, sandbox_id, OperationKind.GROW, pinned_node)


def delete(deps: Deps, owner: User, sandbox_id: str, *,
           pinned_node: str | None = None) -> SandboxView:
    """Tear a sandbox down, whatever it is doing; returns once it is `stopped`. Deleting twice is no
    error."""
    return _change(deps, owner, sandbox_id, OperationKind.STOP, pinned_node)


def force_stop(deps: Deps, sandbox_id: str, *, requested_by: str) -> SandboxView:
    """Tear anybody's sandbox down, as its owner's delete would; the operation and the event keep
    `requested_by`.

    Returns once it is `stopped`; on one that is stopped already nothing happens. Raises NotFound,
    Unavailable (it goes on).
    """
    with connection():
        with database.atomic():
            sandbox = lock_sandbox(sandbox_id)
            if sandbox is None:
                raise NotFound(f"There is no sandbox {sandbox_id}.")
            if sandbox.status == SandboxStatus.STOPPED:
                return sandbox_view(sandbox)
            begun = sandbox.task == OperationKind.STOP
            messages = [] if begun else begin_stop(deps.settings, sandbox,
                                                   requested_by=requested_by)[1]
        outbox.flush(deps.queue, messages)
    wait_for_operation(deps, sandbox_id, sandbox.op_seq)
    with connection():
        return sandbox_view(Sandbox.get_by_id(sandbox_id))


def extend(
    owner: User, sandbox_id: str, timeout: int | None, *, pinned_node: str | None = None
) -> SandboxView:
    """Restart the idle clock, with a new idle timeout in seconds if given; raises Conflict when
    stopped."""
    with connection(), database.atomic():
        sandbox = create.check_owned(owner, lock_sandbox(sandbox_id), sandbox_id,
                                     pinned_node)
        if sandbox.status == SandboxStatus.STOPPED:
            raise Conflict("The sandbox is stopped; its idle timeout cannot be extended.")
        seconds = timeout or sandbox.idle_timeout_s
        Sandbox.update(idle_timeout_s=seconds, **touch_values(seconds)).where(
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

    1. If it is there already: done. 2. If the same operation is under way: join it. 3. If another
    one is: wait for its end and look again (a wake right after a pause must work). 4. Otherwise
    begin it and wait for its end. Ports that are not bound yet, or a readiness port still to be
    waited for, need an operation of their own: with them, 1 and 2 do not count.
    """
    timeout_s = deps.settings.operation_wait_s
    create.get_owned(owner, sandbox_id, pinned_node=pinned_node)

    def attempt() -> int | str | None:
        with database.atomic():
            sandbox = lock_sandbox(sandbox_id)
            assert sandbox is not None
            # An archive leaves the sandbox what it is, and may take minutes.
            settled = sandbox.task in (None, OperationKind.ARCHIVE)
            there = settled and sandbox.status == TRANSITIONS[kind].target
            more = _has_more_ports(sandbox, ports) or _waits_for_more(sandbox, kind, readiness_port)
            if there and not more:
                return "already there"
            if sandbox.task == kind.value and not more:
                return int(sandbox.op_seq)
            if sandbox.task is not None and kind is not OperationKind.STOP:
                check_booted(sandbox, kind)
                return None
            if kind is OperationKind.WAKE and sandbox.status == SandboxStatus.HIBERNATED:
                placement.claim_capacity(deps.settings, sandbox)
            _set_launch(sandbox, ports, readiness_port)
            if kind is OperationKind.STOP:
                operation, messages = begin_stop(deps.settings, sandbox)
            else:
                # A wake of a running machine resumes nothing; the driver forwards the new ports,
                # the new service is waited for.
                operation, messages = begin(deps.settings, sandbox, kind, from_any=there)
        outbox.flush(deps.queue, messages)
        return int(operation.op_seq)

    found = wait_until(sandbox_id, attempt, timeout_s)
    if found is None:
        raise still_busy(sandbox_id)
    if isinstance(found, int):
        wait_for_operation(deps, sandbox_id, found)
    return create.get_view(owner, sandbox_id)


def check_booted(sandbox: Sandbox, kind: OperationKind) -> None:
    """Waiting for a boot is for those who want it to run; everything else is refused, with the
    state (our choice)."""
    if sandbox.status == SandboxStatus.PROVISIONING and kind is not OperationKind.WAKE:
        raise Conflict(
            f"The sandbox is {sandbox.status}; {kind.value} is not possible in that state.")


def _has_more_ports(sandbox: Sandbox, ports: tuple[int, ...]) -> bool:
    bound = PortBinding.select(PortBinding.guest_port).where(PortBinding.sandbox_id == sandbox.id)
    return bool(set(ports) - {row.guest_port for row in bound}) if ports else False


def _waits_for_more(sandbox: Sandbox, kind: OperationKind, readiness_port: int | None) -> bool:
    """True for a wake with another readiness port than the last one waited for, or if that one
    waited in vain."""
    if kind is not OperationKind.WAKE:
        return False
    unready = sandbox.status == SandboxStatus.RUNNING and sandbox.error is not None
    return unready or readiness_port not in (None, sandbox.readiness_port)


def _set_launch(sandbox: Sandbox, ports: tuple[int, ...], readiness_port: int | None) -> None:
    if ports:
        node = Node.select().where(Node.id == sandbox.node_id).for_update(ROW_LOCK).get()
        placement.bind_ports(node, sandbox.id, ports)
    if readiness_port is not None:
        Sandbox.update(readiness_port=readiness_port).where(Sandbox.id == sandbox.id).execute()


def still_busy(sandbox_id: str) -> Unavailable:
    """The error for a caller who has waited long enough; what it waited for goes on."""
    with connection():
        sandbox = Sandbox.get_by_id(sandbox_id)
    return Unavailable(
        f"The sandbox is still {describe(sandbox.status, sandbox.task)}; the operation goes on, ask"
        " again later.",
        retry_after_s=5,
    )


def wait_for_operation(deps: Deps, sandbox_id: str, op_seq: int) -> Operation:
    """Wait for the end of an operation; raises Unavailable if it failed or goes on too long,
    Conflict if superseded."""

    def probe() -> Operation | None:
        return Operation.get_or_none((Operation.sandbox_id == sandbox_id)
                                     & (Operation.op_seq == op_seq) & Operation.state.in_(_FINAL))

    operation = wait_until(sandbox_id, probe, deps.settings.operation_wait_s)
    if operation is None:
        raise still_busy(sandbox_id)
    if operation.state == OperationState.SUPERSEDED:
        raise Conflict("The sandbox was deleted meanwhile.")
    if operation.state == OperationState.FAILED:
        raise Unavailable(operation.error or "The operation failed.")
    return operation
