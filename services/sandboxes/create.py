"""Creates a sandbox: from the platform's image, from a template, or with an agent preset.

A create answers at once, unless it is for a preset: then 1. the caller waits for the end of the
boot, which makes the preset ready or says why not; 2. whoever ends the boot keeps the answer under
the idempotency key (`services/sandboxes/outcomes.py`), so that all who ask get the same, also if
nobody waited for it.
"""
from dataclasses import asdict, replace
from typing import Any, TypeVar

from config.settings import Settings
from models.nodes import Node
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OPEN_STATES, OperationKind, OperationState
from models.templates import Template
from services.errors import Conflict, InvalidRequest, Unavailable
from services.hosts import guest_environment, placement
from services.hosts.port_room import PortsWanted
from services.metering import credit
from services.metering.plans import Size, choose_size, included_size
from services.operations import idempotency
from services.operations.row_changes import wait_until
from services.protocols import Deps
from services.sandboxes import agent_servers, quotas
from services.sandboxes.caller import Caller
from services.sandboxes.copies import node_of_copy
from services.sandboxes.insert import NewSandbox, begin_boot, insert, make_once, ports_of
from services.sandboxes.requests import CreateRequest, LaunchOptions
from services.sandboxes.views import SandboxView, sandbox_view
from services.templates import lookup, presets
from services.templates.lookup import ResolvedTemplate
from services.templates.presets import PRESETS, PresetOfSandbox

CREATE_ROUTE = "sandboxes.create"
Value = TypeVar("Value")
_RETRY_AFTER_S = 10


def create(deps: Deps, caller: Caller, request: CreateRequest) -> SandboxView:
    """Reserve a sandbox and start booting it; returns at once with status `provisioning`, or with a
    preset once that is ready or has failed.

    A replay of the same idempotency key returns the first response and makes nothing. Raises
    InvalidRequest, PlanRequired, InsufficientCredit, Conflict, WrongNode, Unavailable; then nothing
    was made, except of a preset that takes too long: the text names its sandbox.
    """
    chosen = PresetOfSandbox(PRESETS[request.template]) if request.template else None
    request = replace(request, options=request.options.for_preset(chosen))

    # After the key: a replay gets its answer even if the owner's plan has changed since.
    def make(sandbox_id: str) -> tuple[Sandbox, list[OutboxMessage]]:
        template = _find_template(caller, request)
        size = _choose_size(caller, request, template)
        credit.check(deps.settings, caller.owner)
        quotas.check_sandbox(deps.settings, caller.owner)
        options, snapshot, preset = request.options, None, chosen
        if template is not None:
            options, snapshot = _with_template(options, template), template.snapshot
            preset = presets.of_copy(Sandbox.get_by_id(snapshot.source_sandbox_id), snapshot)
        node = _claim_node(deps, caller, size, snapshot, preset.preset.slug if preset else None,
                           ports_of(caller, options, preset))
        sandbox = insert(deps, NewSandbox(sandbox_id, caller, node, size.vcpus, size.mem_mb,
                                          options, snapshot, preset))
        return sandbox, begin_boot(deps, sandbox, snapshot=snapshot)

    asked, *equal = _ways_to_ask(deps.settings, caller, request)
    made = make_once(deps, caller, CREATE_ROUTE, request.idempotency_key, asked, make,
                     equal_bodies=equal, answered_later=chosen is not None)
    return made if chosen is None else _with_preset(deps, caller, made.id, request.idempotency_key)


def _with_preset(deps: Deps, caller: Caller, sandbox_id: str, key: str | None) -> SandboxView:
    """The answer to a create with a preset, once there is one."""

    def probe() -> SandboxView | None:
        boot = Operation.get_or_none((Operation.sandbox_id == sandbox_id)
                                     & (Operation.kind == OperationKind.BOOT)
                                     & Operation.state.not_in(OPEN_STATES))
        # Kept by who ended the boot, so there by now; the boot itself may be forgotten before it.
        kept = idempotency.find_response(caller.owner.id, CREATE_ROUTE, key)
        if kept or boot is None:
            return SandboxView.from_json(kept) if kept else None
        if boot.state == OperationState.SUPERSEDED:
            raise Conflict(f"Sandbox {sandbox_id} was deleted meanwhile.")
        if boot.state == OperationState.FAILED:
            idempotency.release(CREATE_ROUTE, sandbox_id)
            raise Unavailable(boot.error or "The sandbox could not be started.")
        return sandbox_view(Sandbox.get_by_id(sandbox_id))

    # A boot, and all that it waits for.
    settings = deps.settings
    limit_s = (settings.operation_wait_s + settings.preset_build_wait_s + settings.preset_verify_s
               + settings.readiness_wait_s)
    made = wait_until(sandbox_id, probe, limit_s, patient=True)
    if made is None:
        raise Unavailable(
            f"Sandbox {sandbox_id} is still being made; that goes on. Look at it, or ask again with"
            " the same idempotencyKey.", retry_after_s=_RETRY_AFTER_S)
    return made


def _ways_to_ask(settings: Settings, caller: Caller,
                 request: CreateRequest) -> list[dict[str, Any]]:
    """What the request asks for, for its hash: first as it was sent, then in the other ways, with
    the defaults of `timeout` and `skipAppProcesses` left out or spelled out.

    What is kept is the hash of the first: one default changes with the setting, the other one
    depends on the credential, and an owner has several.
    """
    unsaid = replace(request.options, skip_app_processes=None)
    # The default of `skipAppProcesses`; with a preset it is that whatever was sent.
    raw = request.template is not None or agent_servers.is_raw(unsaid, caller.kind)
    asked = asdict(replace(request, idempotency_key=None))
    options = asked["options"]
    return [{**asked, "options": {**options, "timeout": timeout, "skip_app_processes": skip}}
            for timeout in _ways_to_say(options["timeout"], settings.idle_timeout_s)
            for skip in _ways_to_say(options["skip_app_processes"], raw)]


def _ways_to_say(said: Value | None, default: Value) -> tuple[Value | None, ...]:
    """`said`, then the same in the other way, if there is one: None is the default left out."""
    if said is None:
        return None, default
    return (said, None) if said == default else (said,)


def _find_template(caller: Caller, request: CreateRequest) -> ResolvedTemplate | None:
    if request.template_id is None:
        return None
    return lookup.resolve(caller.owner, request.template_id)


def _choose_size(caller: Caller, request: CreateRequest,
                 template: ResolvedTemplate | None) -> Size:
    """What was asked for, else the template's own shape where the plan includes it, else the plan's
    machine."""
    plan = caller.owner.plan
    if template is not None and (request.size, request.vcpus, request.mem_mb) == (None, None, None):
        own = included_size(plan, template.snapshot.vcpus, template.snapshot.mem_mb)
        if own is not None:
            return own
    return choose_size(plan, request.size, request.vcpus, request.mem_mb)


def _claim_node(deps: Deps, caller: Caller, size: Size, copied: Snapshot | None,
                preset: str | None, ports: PortsWanted) -> Node:
    """A node for a machine of `size`, which is a copy of a template's snapshot if one is given."""
    settings, pinned = deps.settings, caller.pinned_node
    if copied is None:
        return placement.claim_node(settings, size.vcpus, size.mem_mb, pinned, preset=preset,
                                    ports=ports)
    return node_of_copy.claim(settings, copied, size.vcpus, size.mem_mb, pinned, preset=preset,
                              needs_memory=False, ports=ports)


def _with_template(options: LaunchOptions, found: ResolvedTemplate) -> LaunchOptions:
    """`options` with what the template starts (contract, Templates 4) and its environment; the
    caller's ports are added to its own. Raises InvalidRequest if that makes too many variables."""
    template: Template = found.template
    ports = tuple(dict.fromkeys((*template.ports, *options.ports)))
    env = _inherited_env(found) | options.env
    excess = guest_environment.find_excess(env)
    if excess is not None:
        raise InvalidRequest(f"env: {excess}, with the variables of the template")
    return replace(options, ports=ports, start_command=template.start_command,
                   readiness_port=template.readiness_port, env=env)


def _inherited_env(found: ResolvedTemplate) -> dict[str, str]:
    """The environment of the sandbox that a private template was made of; a stranger's stays the
    stranger's."""
    if found.template.owner_id is None:
        return {}
    env: dict[str, str] = found.snapshot.env
    return env
