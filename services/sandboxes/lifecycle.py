"""Hibernate, wake, grow, extend and delete: each begins an operation and waits on the row for its
end."""
from dataclasses import replace

from models.database import connection, database
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.errors import Conflict, NotFound
from services.hosts import placement
from services.hosts.sandbox_ports import bind_more, open_ports
from services.operations import outbox
from services.operations.begin import begin, check_start, lock_sandbox
from services.operations.open_limit import check_open
from services.operations.transitions import TRANSITIONS
from services.protocols import Deps
from services.sandboxes import find
from services.sandboxes.caller import Caller
from services.sandboxes.idle import touch_values
from services.sandboxes.outcomes import begin_stop
from services.sandboxes.views import SandboxView, sandbox_view
from services.sandboxes.waiting import attempt_when_free, check_free, wait_for_operation


def hibernate(deps: Deps, caller: Caller, sandbox_id: str) -> SandboxView:
    """Put a running sandbox to sleep; returns once it is `hibernated`. Raises Conflict,
    Unavailable."""
    return _change(deps, caller, sandbox_id, OperationKind.HIBERNATE)


def wake(
    deps: Deps,
    caller: Caller,
    sandbox_id: str,
    *,
    ports: tuple[int, ...] = (),
    readiness_port: int | None = None,
) -> SandboxView:
    """Resume a hibernated sandbox under the same id; returns once it is `running`. Raises Conflict,
    RateLimited, Unavailable.

    New `ports` are added for good. With a readiness port, this wake's own `readiness_port` or else
    the one of the wake spec, something listens there then, or `error` says that nothing did in
    time. The wake spec stays what it is.
    """
    return _change(deps, caller, sandbox_id, OperationKind.WAKE, ports, readiness_port)


def wake_machine(deps: Deps, caller: Caller, sandbox_id: str) -> None:
    """Resume a hibernated sandbox for who needs nothing but the machine; returns once it is
    `running`, and leaves the wait for its service to the wake. Raises as `wake`."""
    _change(deps, caller, sandbox_id, OperationKind.WAKE, only_machine=True)


def grow(deps: Deps, caller: Caller, sandbox_id: str) -> None:
    """Bring the disk under a running guest to the platform's floor; returns once it has grown.
    Raises Conflict, Unavailable."""
    _change(deps, caller, sandbox_id, OperationKind.GROW)


def delete(deps: Deps, caller: Caller, sandbox_id: str) -> SandboxView:
    """Tear a sandbox down, whatever it is doing; returns once it is `stopped`. Deleting twice is no
    error."""
    return _change(deps, caller, sandbox_id, OperationKind.STOP)


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


def extend(caller: Caller, sandbox_id: str, timeout: int | None) -> SandboxView:
    """Restart the idle clock, with a new idle timeout in seconds if given; raises Conflict when
    stopped."""
    with connection(), database.atomic():
        sandbox = find.check_owned(caller, lock_sandbox(sandbox_id), sandbox_id)
        if sandbox.status == SandboxStatus.STOPPED:
            raise Conflict("The sandbox is stopped; its idle timeout cannot be extended.")
        seconds = timeout or sandbox.idle_timeout_s
        Sandbox.update(idle_timeout_s=seconds, **touch_values(seconds)).where(
            Sandbox.id == sandbox_id
        ).execute()
        return sandbox_view(sandbox)


def _change(deps: Deps, caller: Caller, sandbox_id: str, kind: OperationKind,
            ports: tuple[int, ...] = (), readiness_port: int | None = None, *,
            only_machine: bool = False) -> SandboxView:
    """Bring the sandbox to where `kind` leads.

    1. If it is there already: done; whoever wakes it is about to use it, so its idle clock starts
    again. 2. If the same operation is under way: join it. 3. If another one is: wait for its end
    and look again (a wake right after a pause must work). 4. Otherwise begin it, and wait for its
    end. Ports that are not open and that nothing under way opens, or a readiness port still to be
    waited for, need an operation of their own: with them, 1 and 2 do not count. With
    `only_machine` no service is waited for.
    """
    find.get_owned(caller, sandbox_id)

    def attempt(sandbox: Sandbox) -> tuple[int | None, list[OutboxMessage]]:
        # An archive leaves the sandbox what it is, and may take minutes.
        settled = sandbox.task in (None, OperationKind.ARCHIVE)
        there = settled and sandbox.status == TRANSITIONS[kind].target
        more = _has_more_ports(sandbox, ports) or (
            not only_machine and _waits_for_more(sandbox, kind, readiness_port))
        if there and not more:
            if kind is OperationKind.WAKE:
                Sandbox.update(**touch_values(sandbox.idle_timeout_s)).where(
                    Sandbox.id == sandbox.id).execute()
            return None, []
        if sandbox.task == kind.value and not more:
            return int(sandbox.op_seq), []
        operation, messages = _begin(deps, sandbox, kind, ports, readiness_port)
        return int(operation.op_seq), messages

    op_seq = attempt_when_free(deps, sandbox_id, attempt)
    if op_seq is not None:
        more_s = deps.settings.readiness_wait_s if kind is OperationKind.WAKE else 0
        wait_for_operation(deps, sandbox_id, op_seq, more_s=more_s, only_machine=only_machine)
    return find.get_view(replace(caller, pinned_node=None), sandbox_id)


def _begin(deps: Deps, sandbox: Sandbox, kind: OperationKind, ports: tuple[int, ...],
           readiness_port: int | None) -> tuple[Operation, list[OutboxMessage]]:
    """Begin `kind` on a sandbox whose row is locked, unless it is busy or its owner has too many
    under way."""
    if kind is OperationKind.STOP:
        return begin_stop(deps.settings, sandbox)
    check_free(sandbox, kind)
    # A wake of a running machine resumes nothing; the driver forwards the new ports, the new
    # service is waited for. It may run because the wait of the wake before was just ended.
    runs = kind is OperationKind.WAKE and sandbox.status == SandboxStatus.RUNNING
    check_start(sandbox, kind, from_any=runs)
    check_open(deps.settings, sandbox)
    if kind is OperationKind.WAKE and sandbox.status == SandboxStatus.HIBERNATED:
        placement.claim_capacity(deps.settings, sandbox)
    if ports:
        bind_more(deps.settings, sandbox, ports)
    return begin(deps.settings, sandbox, kind, from_any=runs, readiness_port=readiness_port)


def _has_more_ports(sandbox: Sandbox, ports: tuple[int, ...]) -> bool:
    """True if some of the ports are not open, and the wake that is under way does not open them."""
    under_way = sandbox.op_seq if sandbox.task == OperationKind.WAKE else None
    return bool(set(ports) - open_ports(sandbox.id, under_way)) if ports else False


def _waits_for_more(sandbox: Sandbox, kind: OperationKind, readiness_port: int | None) -> bool:
    """True for a wake with a readiness port that nobody waits for or has waited for, or if the last
    one was waited for in vain."""
    if kind is not OperationKind.WAKE:
        return False
    if sandbox.task == OperationKind.WAKE:
        under_way = Operation.get(Operation.numbered(sandbox.id, sandbox.op_seq))
        waits_for = under_way.readiness_port or sandbox.readiness_port
        return (readiness_port or sandbox.readiness_port) != waits_for
    unready = sandbox.status == SandboxStatus.RUNNING and sandbox.error is not None
    return unready or readiness_port not in (None, sandbox.readiness_port)
