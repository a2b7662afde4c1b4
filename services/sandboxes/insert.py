"""Makes a new sandbox: its rows, its boot, and all of it once for each idempotency key.

1. `make_once` reserves the key; a repeated request gets the first response. 2. `insert` writes the
rows and the port bindings. 3. `begin_boot` begins the boot. It is one transaction.
"""
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from guest.agent.protocol import AGENT_PORT
from models.database import connection, database
from models.ids import new_id
from models.nodes import Node
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind
from services.hosts import sandbox_ports
from services.hosts.port_room import PortsWanted
from services.hosts.sandbox_ports import Bearer
from services.operations import idempotency, outbox
from services.operations.begin import begin
from services.operations.open_limit import check_open
from services.protocols import Deps
from services.sandboxes import agent_servers
from services.sandboxes.caller import Caller
from services.sandboxes.find import check_pin
from services.sandboxes.requests import LaunchOptions
from services.sandboxes.views import SandboxView, sandbox_view
from services.templates.presets import PresetOfSandbox

# Given the new sandbox's id, inserts it and begins its boot.
Make = Callable[[str], tuple[Sandbox, list[OutboxMessage]]]


@dataclass(frozen=True)
class NewSandbox:
    """A sandbox to be made on `node`, whose row is locked; with a `snapshot` it is a copy of it."""

    id: str
    caller: Caller
    node: Node
    vcpus: int
    mem_mb: int
    options: LaunchOptions
    snapshot: Snapshot | None = None
    preset: PresetOfSandbox | None = None


def ports_of(caller: Caller, options: LaunchOptions, preset: PresetOfSandbox | None) -> PortsWanted:
    """The host ports that `insert` will bind for such a sandbox."""
    return Bearer("", caller.owner.id, caller.kind).wants(
        (AGENT_PORT, *options.for_preset(preset).ports))


def insert(deps: Deps, new: NewSandbox) -> Sandbox:
    """Write the rows and port bindings of a new sandbox, in the current transaction. Raises
    RateLimited, Unavailable."""
    options = new.options.for_preset(new.preset)
    bound = sandbox_ports.bind_ports(
        deps.settings, new.node, Bearer(new.id, new.caller.owner.id, new.caller.kind),
        (AGENT_PORT, *options.ports))
    raw = agent_servers.is_raw(options, new.caller.kind)
    copied = {} if new.snapshot is None else {
        "snapshot_id": new.snapshot.id, "cwd": new.snapshot.cwd
    }
    sandbox = Sandbox.create(
        id=new.id,
        owner=new.caller.owner.id,
        node_id=new.node.id,
        kind=new.caller.kind,
        vcpus=new.vcpus,
        mem_mb=new.mem_mb,
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
        **copied,
        **_preset_columns(new.preset),
    )
    check_open(deps.settings, sandbox)
    if not raw:
        agent_servers.keep(new.id, options.agent_server_source, options.agent_bootstrap)
    return sandbox


def _preset_columns(chosen: PresetOfSandbox | None) -> dict[str, Any]:
    if chosen is None:
        return {}
    return {"preset": chosen.preset.slug, "preset_state": chosen.state,
            "preset_error": chosen.error}


def begin_boot(deps: Deps, sandbox: Sandbox, *, snapshot: Snapshot | None = None,
               after: Operation | None = None, ends_listener: bool = False) -> list[OutboxMessage]:
    """Begin the boot of an inserted sandbox, from a snapshot if given, once `after` has succeeded
    if given. With `ends_listener` its start command replaces what listens in the copied memory."""
    _, messages = begin(deps.settings, sandbox, OperationKind.BOOT,
                        snapshot=snapshot, after=after, ends_listener=ends_listener)
    return messages


def make_once(deps: Deps, caller: Caller, route: str, key: str | None, body: Mapping[str, Any],
              make: Make, *, equal_bodies: Iterable[Mapping[str, Any]] = (),
              answered_later: bool = False) -> SandboxView:
    """Call `make` in a transaction of its own, unless `key` was used before with the same `body`,
    or with one of `equal_bodies`, which ask for the same.

    With `answered_later` what it returns is not the first response yet. Raises Conflict for a key
    used with another body, WrongNode if the first sandbox is not on the node that the caller
    pinned, and what `make` raises; then nothing was made.
    """
    # One by one, of a replay that is not the same: a body may be large.
    equal_hashes = (idempotency.request_hash(equal) for equal in equal_bodies)
    with connection():
        with database.atomic():
            reserved = idempotency.reserve(
                deps.settings, caller.owner.id, route, key, equal_hashes=equal_hashes,
                body_hash=idempotency.request_hash(body), resource_id=new_id())
            if not reserved.first:
                return check_pin(caller, _first_response(reserved))
            sandbox, messages = make(reserved.resource_id)
            view = sandbox_view(sandbox)
            if key and not answered_later:
                idempotency.store_response(caller.owner.id, route, key, view.to_json())
        outbox.flush(deps.queue, messages)
    return view


def _first_response(reserved: idempotency.Reservation) -> SandboxView:
    if reserved.response is not None:
        return SandboxView.from_json(reserved.response)
    return sandbox_view(Sandbox.get_by_id(reserved.resource_id))
