"""Making and finding sandboxes."""
import secrets
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from guest.agent.protocol import AGENT_PORT
from models.database import connection, database, new_id
from models.nodes import Node
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.statements import Statement
from models.states import OperationKind, SandboxKind
from models.templates import Template
from models.users import User
from services.errors import Forbidden, NotFound, Unavailable, WrongNode
from services.hosts import placement
from services.metering import credit
from services.metering.plans import Size, choose_size, included_size
from services.operations import idempotency, outbox
from services.operations.begin import begin
from services.protocols import Deps
from services.sandboxes import agent_servers
from services.sandboxes.views import SandboxView, sandbox_view
from services.templates import lookup
from services.templates.lookup import Baked

CREATE_ROUTE = "sandboxes.create"
_BY_ID = Statement(Sandbox, lambda sandbox_id: Sandbox.select().where(Sandbox.id == sandbox_id))


@dataclass(frozen=True)
class LaunchOptions:
    """What a create or fork may say about the new sandbox; None means not said."""

    ports: tuple[int, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    timeout: int | None = None
    start_command: str | None = None
    readiness_port: int | None = None
    skip_app_processes: bool | None = None
    preferred_model: str | None = None
    git_repository_url: str | None = None
    git_ref: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    project_slug: str | None = None
    app_id: str | None = None
    agent_server_source: str | None = None
    agent_bootstrap: dict[str, Any] | None = None


@dataclass(frozen=True)
class CreateRequest:
    """A validated create body."""

    options: LaunchOptions
    size: str | None = None
    vcpus: int | None = None
    mem_mb: int | None = None
    template_id: str | None = None
    template: str | None = None
    idempotency_key: str | None = None


def create(
    deps: Deps,
    owner: User,
    request: CreateRequest,
    *,
    kind: SandboxKind = SandboxKind.API,
    pinned_node: str | None = None,
) -> SandboxView:
    """Reserve a sandbox and start booting it; returns at once with status `provisioning`.

    A replay of the same idempotency key returns the first response and makes nothing. Raises
    InvalidRequest, PlanRequired, InsufficientCredit, Conflict, WrongNode, Unavailable; then nothing
    was made.
    """
    sandbox_id = new_id()
    with connection():
        with database.atomic():
            if request.idempotency_key:
                reservation = idempotency.reserve(
                    owner.id,
                    CREATE_ROUTE,
                    request.idempotency_key,
                    body_hash=idempotency.request_hash(_said(request)),
                    resource_id=sandbox_id,
                    lifetime=timedelta(hours=deps.settings.idempotency_hours),
                )
                if not reservation.first:
                    return replayed(reservation)
            # After the key: a replay gets its answer even if the owner's plan has changed since.
            baked = _find_template(owner, request)
            size = _choose_size(owner, request, baked)
            credit.check(deps.settings, owner)
            node = placement.claim_node(deps.settings, size.vcpus, size.mem_mb,
                                        _pin(baked, pinned_node))
            options = request.options if baked is None else _with_template(
                request.options, baked.template)
            sandbox = insert(deps, owner, sandbox_id, node, size.vcpus, size.mem_mb, options, kind)
            if baked is not None:
                stand_on(sandbox, baked.snapshot, _inherited_env(baked) | options.env)
            messages = start_boot(deps, sandbox, snapshot=baked.snapshot if baked else None)
            view = sandbox_view(sandbox)
            if request.idempotency_key:
                idempotency.store_response(owner.id, CREATE_ROUTE, request.idempotency_key,
                                           view.to_json())
        outbox.flush(deps.queue, messages)
    return view


def _said(request: CreateRequest) -> dict[str, Any]:
    """What the request asks for: the same whether or not it spells out a default, and whatever
    credential it has."""
    options = replace(
        request.options, skip_app_processes=_skips_app_processes(request.options, SandboxKind.API)
    )
    return asdict(replace(request, options=options, idempotency_key=None))


def _skips_app_processes(options: LaunchOptions, kind: SandboxKind) -> bool:
    """Contract, Create body: API-key callers get a raw sandbox unless they say what its agent
    server is."""
    if options.skip_app_processes is not None:
        return options.skip_app_processes
    return kind is SandboxKind.API and options.agent_server_source is None


def _find_template(owner: User, request: CreateRequest) -> Baked | None:
    if request.template is not None:
        raise Unavailable("Agent presets are not available in this version.")
    return None if request.template_id is None else lookup.resolve(owner, request.template_id)


def _choose_size(owner: User, request: CreateRequest, baked: Baked | None) -> Size:
    """What was asked for, else the template's own shape where the plan includes it, else the plan's
    machine."""
    if baked is not None and (request.size, request.vcpus, request.mem_mb) == (None, None, None):
        own = included_size(owner.plan, baked.snapshot.vcpus, baked.snapshot.mem_mb)
        if own is not None:
            return own
    return choose_size(owner.plan, request.size, request.vcpus, request.mem_mb)


def _pin(baked: Baked | None, pinned_node: str | None) -> str | None:
    """The node the sandbox has to be on, if any: the caller's, which must be the one that the
    template needs."""
    return pinned_node if baked is None else placement.node_of_copy(baked.snapshot, pinned_node)


def _with_template(options: LaunchOptions, template: Template) -> LaunchOptions:
    """`options` with what the template starts (contract, Templates 4); the caller's ports are added
    to its own."""
    ports = tuple(dict.fromkeys((*template.ports, *options.ports)))
    return replace(options, ports=ports, start_command=template.start_command,
                   readiness_port=template.readiness_port)


def _inherited_env(baked: Baked) -> dict[str, str]:
    """The environment of the sandbox that a private template was made of; a stranger's stays the
    stranger's."""
    if baked.template.owner_id is None:
        return {}
    env: dict[str, str] = Sandbox.get_by_id(baked.snapshot.source_sandbox_id).env
    return env


def stand_on(sandbox: Sandbox, taken: Snapshot, env: dict[str, str]) -> None:
    """Say that an inserted sandbox is a copy of `taken`, with `env` as its environment."""
    Sandbox.update(snapshot_id=taken.id, cwd=taken.cwd,
                   env=env).where(Sandbox.id == sandbox.id).execute()
    sandbox.cwd = taken.cwd


def replayed(reservation: idempotency.Reservation) -> SandboxView:
    """The answer to a repeated create or fork: the first response."""
    if reservation.response is not None:
        return SandboxView.from_json(reservation.response)
    return sandbox_view(Sandbox.get_by_id(reservation.resource_id))


def insert(
    deps: Deps, owner: User, sandbox_id: str, node: Node, vcpus: int, mem_mb: int,
    options: LaunchOptions, kind: SandboxKind,
) -> Sandbox:
    """Write the rows and port bindings of a new sandbox on a locked node, in the current
    transaction."""
    bound = placement.bind_ports(node, sandbox_id, (AGENT_PORT, *options.ports))
    raw = _skips_app_processes(options, kind)
    sandbox = Sandbox.create(
        id=sandbox_id,
        owner=owner.id,
        node_id=node.id,
        kind=kind,
        vcpus=vcpus,
        mem_mb=mem_mb,
        env=options.env,
        agent_port=bound[AGENT_PORT],
        agent_token=secrets.token_urlsafe(32),
        start_command=options.start_command,
        readiness_port=options.readiness_port,
        skip_app_processes=raw,
        preferred_model=options.preferred_model or "",
        git_repository_url=options.git_repository_url,
        git_ref=options.git_ref,
        session_id=options.session_id,
        project_id=options.project_id,
        project_slug=options.project_slug,
        app_id=options.app_id,
        idle_timeout_s=options.timeout or deps.settings.idle_timeout_s,
    )
    if not raw:
        agent_servers.keep(sandbox_id, options.agent_server_source, options.agent_bootstrap)
    return sandbox


def get_owned(owner: User, sandbox_id: str, *, pinned_node: str | None = None) -> Sandbox:
    """The row, if `owner` owns it; raises NotFound, Forbidden, or WrongNode when the caller pinned
    another node."""
    with connection():
        sandbox = _BY_ID.find(sandbox_id)
    return check_owned(owner, sandbox, sandbox_id, pinned_node)


def check_owned(owner: User, sandbox: Sandbox | None, sandbox_id: str,
                pinned_node: str | None) -> Sandbox:
    """`sandbox` if it exists and `owner` may use it under the pin; raises NotFound, Forbidden,
    WrongNode."""
    if sandbox is None:
        raise NotFound(f"There is no sandbox {sandbox_id}.")
    if sandbox.owner_id != owner.id:
        raise Forbidden("This sandbox belongs to another account.")
    if pinned_node is not None and sandbox.node_id != pinned_node:
        raise WrongNode(f"Sandbox {sandbox_id} is on node {sandbox.node_id}, not on {pinned_node}.")
    return sandbox


def get_view(owner: User, sandbox_id: str, *, pinned_node: str | None = None) -> SandboxView:
    """The sandbox as its owner sees it; raises as `get_owned`."""
    with connection():
        return sandbox_view(get_owned(owner, sandbox_id, pinned_node=pinned_node))


def start_boot(deps: Deps, sandbox: Sandbox, *, snapshot: Snapshot | None = None,
               after: Operation | None = None) -> list[OutboxMessage]:
    """Begin the boot of an inserted sandbox, from a snapshot if given, once `after` has succeeded
    if given."""
    _, messages = begin(deps.settings, sandbox, OperationKind.BOOT,
                        snapshot_id=snapshot.id if snapshot else None, after=after)
    return messages
