"""Forks: a new sandbox in the state of a live one or of a snapshot (contract, Fork rules)."""
from dataclasses import asdict, replace

from models.ids import new_id
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, SnapshotState
from services.errors import Conflict
from services.metering import credit
from services.metering.plans import check_fork
from services.protocols import Deps
from services.sandboxes import agent_servers, find, quotas
from services.sandboxes.caller import Caller
from services.sandboxes.copies import capture, node_of_copy
from services.sandboxes.insert import NewSandbox, begin_boot, insert, make_once, ports_of
from services.sandboxes.requests import LaunchOptions
from services.sandboxes.views import SandboxView, sandbox_view
from services.sandboxes.waiting import attempt_when_free, check_free_to_capture
from services.snapshots.find import get_owned
from services.templates import presets
from services.templates.start_command import check_launch

ROUTE = "sandboxes.fork"


def of_sandbox(deps: Deps, caller: Caller, sandbox_id: str, options: LaunchOptions) -> SandboxView:
    """Fork a running or hibernated sandbox, which goes on undisturbed; returns at once with the new
    sandbox.

    The capture and the boot are two operations: the boot waits for the capture and fails with it.
    Forks that are asked for at once share a capture.
    """
    check_launch(options.start_command, options.readiness_port, options.ports)
    find.get_owned(caller, sandbox_id)
    asked_at_seq: int | None = None

    def attempt(source: Sandbox) -> tuple[SandboxView, list[OutboxMessage]]:
        nonlocal asked_at_seq
        if asked_at_seq is None:
            asked_at_seq = source.op_seq
        joined = capture.find_transient(source, asked_at_seq)
        if joined is None:
            check_free_to_capture(source, OperationKind.SNAPSHOT)
            taken, begun, messages = capture.begin_capture(deps, source, new_id("snap"),
                                                           transient=True)
        else:
            (taken, begun), messages = joined, []
        fork = _insert_fork(deps, caller, new_id(), taken, options, source)
        begin_boot(deps, fork, snapshot=taken, after=begun,
                   ends_listener=_ends_listener(options, source))
        return sandbox_view(fork), messages

    return attempt_when_free(deps, sandbox_id, attempt)


def of_snapshot(deps: Deps, caller: Caller, snapshot_id: str, options: LaunchOptions, *,
                idempotency_key: str | None = None) -> SandboxView:
    """Start a new sandbox from a snapshot the caller owns, on the node that holds it or on another
    one (contract, Fork rules 1 to 4; see `node_of_copy`).

    A replay of the key returns the first response and makes no second VM. Raises NotFound,
    Forbidden, Conflict, PlanRequired, WrongNode, Unavailable.
    """
    check_launch(options.start_command, options.readiness_port, options.ports)

    # After the key: a replay gets its answer even if the snapshot has been deleted since.
    def make(sandbox_id: str) -> tuple[Sandbox, list[OutboxMessage]]:
        taken = get_owned(caller.owner, snapshot_id)
        if taken.state != SnapshotState.READY:
            raise Conflict(f"The snapshot is {taken.state}; only a ready one can be forked.")
        source = Sandbox.get_by_id(taken.source_sandbox_id)
        fork = _insert_fork(deps, caller, sandbox_id, taken, options, source)
        return fork, begin_boot(deps, fork, snapshot=taken,
                                ends_listener=_ends_listener(options, source))

    body = {"snapshot_id": snapshot_id} | asdict(options)
    return make_once(deps, caller, ROUTE, idempotency_key, body, make)


def _insert_fork(deps: Deps, caller: Caller, sandbox_id: str, taken: Snapshot,
                 options: LaunchOptions, source: Sandbox) -> Sandbox:
    check_fork(caller.owner.plan, taken.vcpus, taken.mem_mb)
    credit.check(deps.settings, caller.owner)
    quotas.check_sandbox(deps.settings, caller.owner)
    inherited, preset = _inherit(options, source, taken), presets.of_copy(source, taken)
    node = node_of_copy.claim(deps.settings, taken, taken.vcpus, taken.mem_mb, caller.pinned_node,
                              preset=source.preset, ports=ports_of(caller, inherited, preset))
    return insert(deps, NewSandbox(sandbox_id, caller, node, taken.vcpus, taken.mem_mb, inherited,
                                   taken, preset))


def _ends_listener(options: LaunchOptions, source: Sandbox) -> bool:
    """True if the fork has a start command of its own: what listens in the copied memory is of the
    source's then."""
    return options.start_command not in (None, source.start_command)


def _inherit(options: LaunchOptions, source: Sandbox, taken: Snapshot) -> LaunchOptions:
    """`options` with the source's settings where the fork's request has none.

    A fork never inherits the session, project, app and callbacks, the open ports, or the start
    command, but the web UI of an agent preset. It always has the variables of the capture, and the
    idle timeout, the git repository, the agent server and the agent preset of its source.
    """
    skip, model = options.skip_app_processes, options.preferred_model
    return replace(
        options,
        env=taken.env | options.env,
        timeout=source.idle_timeout_s,
        skip_app_processes=source.skip_app_processes if skip is None else skip,
        preferred_model=source.preferred_model if model is None else model,
        git_repository_url=source.git_repository_url,
        git_ref=source.git_ref,
        agent_server_source=agent_servers.find_source(source.id),
    )
