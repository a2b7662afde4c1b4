"""Forks: a new sandbox in the state of a live one or of a snapshot (contract, Fork rules)."""
from dataclasses import asdict, replace
from datetime import timedelta

from models.database import connection, database, new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, SandboxKind, SnapshotState
from models.users import User
from services.errors import Conflict
from services.hosts import placement
from services.metering import credit
from services.metering.plans import check_fork
from services.operations import idempotency, outbox
from services.operations.begin import lock_sandbox
from services.operations.waits import wait_until
from services.protocols import Deps
from services.sandboxes import agent_servers
from services.sandboxes import capture as snapshots
from services.sandboxes import create
from services.sandboxes.create import LaunchOptions
from services.sandboxes.lifecycle import check_booted, still_busy
from services.sandboxes.views import SandboxView, sandbox_view
from services.templates.start_command import check_launch

ROUTE = "sandboxes.fork"


def of_sandbox(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    options: LaunchOptions,
    *,
    kind: SandboxKind = SandboxKind.API,
    pinned_node: str | None = None,
) -> SandboxView:
    """Fork a running or hibernated sandbox, which goes on undisturbed; returns at once with the new
    sandbox.

    The capture and the boot are two operations: the boot waits for the capture and fails with it.
    """
    check_launch(options.start_command, options.readiness_port, options.ports)
    create.get_owned(owner, sandbox_id, pinned_node=pinned_node)

    def attempt() -> SandboxView | None:
        with database.atomic():
            source = lock_sandbox(sandbox_id)
            assert source is not None
            if source.task is not None and source.task != OperationKind.STOP:
                check_booted(source, OperationKind.SNAPSHOT)
                return None
            capture, messages = snapshots.begin_capture(deps, source, new_id("snap"),
                                                        transient=True)
            taken = Snapshot.get_by_id(capture.snapshot_id)
            fork = _insert_fork(deps, owner, new_id(), taken, source.node_id, options, kind, source)
            create.start_boot(deps, fork, snapshot=taken, after=capture)
            view = sandbox_view(fork)
        outbox.flush(deps.queue, messages)
        return view

    view = wait_until(sandbox_id, attempt, deps.settings.operation_wait_s)
    if view is None:
        raise still_busy(sandbox_id)
    return view


def of_snapshot(
    deps: Deps,
    owner: User,
    snapshot_id: str,
    options: LaunchOptions,
    *,
    idempotency_key: str | None = None,
    kind: SandboxKind = SandboxKind.API,
    pinned_node: str | None = None,
) -> SandboxView:
    """Start a new sandbox from a snapshot the owner owns, on the node that holds it (contract, Fork
    rules 1 to 4).

    A `files_only` snapshot is in the store and goes to any node with room.

    A replay of the key returns the first response and makes no second VM. Raises NotFound,
    Forbidden, Conflict, PlanRequired, WrongNode, Unavailable.
    """
    check_launch(options.start_command, options.readiness_port, options.ports)
    with connection():
        with database.atomic():
            sandbox_id = new_id()
            if idempotency_key:
                known = idempotency.reserve(
                    owner.id, ROUTE, idempotency_key,
                    body_hash=idempotency.request_hash(
                        {"snapshot_id": snapshot_id, **asdict(options)}
                    ),
                    resource_id=sandbox_id,
                    lifetime=timedelta(hours=deps.settings.idempotency_hours),
                )
                if not known.first:
                    return create.replayed(known)
            # After the key: a replay gets its answer even if the snapshot has been deleted since.
            taken = snapshots.get_owned(owner, snapshot_id)
            node_id = placement.node_of_copy(taken, pinned_node)
            if taken.state != SnapshotState.READY:
                raise Conflict(f"The snapshot is {taken.state}; only a ready one can be forked.")
            source = Sandbox.get_by_id(taken.source_sandbox_id)
            fork = _insert_fork(deps, owner, sandbox_id, taken, node_id, options, kind, source)
            messages = create.start_boot(deps, fork, snapshot=taken)
            view = sandbox_view(fork)
            if idempotency_key:
                idempotency.store_response(owner.id, ROUTE, idempotency_key, view.to_json())
        outbox.flush(deps.queue, messages)
    return view


def _insert_fork(
    deps: Deps,
    owner: User,
    sandbox_id: str,
    taken: Snapshot,
    node_id: str | None,
    options: LaunchOptions,
    kind: SandboxKind,
    source: Sandbox,
) -> Sandbox:
    check_fork(owner.plan, taken.vcpus, taken.mem_mb)
    credit.check(deps.settings, owner)
    node = placement.claim_node(deps.settings, taken.vcpus, taken.mem_mb, node_id)
    same = _as_its_source(options, source)
    fork = create.insert(deps, owner, sandbox_id, node, taken.vcpus, taken.mem_mb, same, kind)
    create.stand_on(fork, taken, same.env)
    return fork


def _as_its_source(options: LaunchOptions, source: Sandbox) -> LaunchOptions:
    """A fork is the same computer: what it does not say, the source says, except for whom it is
    (session, project, app and callbacks), which of its ports are open, and what starts in it."""
    skip, model = options.skip_app_processes, options.preferred_model
    return replace(
        options,
        env=source.env | options.env,
        timeout=source.idle_timeout_s,
        skip_app_processes=source.skip_app_processes if skip is None else skip,
        preferred_model=source.preferred_model if model is None else model,
        git_repository_url=source.git_repository_url,
        git_ref=source.git_ref,
        agent_server_source=agent_servers.find_source(source.id),
    )
