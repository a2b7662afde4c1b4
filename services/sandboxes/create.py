"""Creates a sandbox: from the platform's image, or from a template."""
from dataclasses import asdict, replace
from typing import Any

from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import SandboxKind
from models.templates import Template
from services.errors import Unavailable
from services.hosts import placement
from services.metering import credit
from services.metering.plans import Size, choose_size, included_size
from services.protocols import Deps
from services.sandboxes import quotas
from services.sandboxes.caller import Caller
from services.sandboxes.insert import NewSandbox, begin_boot, insert, make_once
from services.sandboxes.requests import CreateRequest, LaunchOptions
from services.sandboxes.views import SandboxView
from services.templates import lookup
from services.templates.lookup import ResolvedTemplate

CREATE_ROUTE = "sandboxes.create"


def create(deps: Deps, caller: Caller, request: CreateRequest) -> SandboxView:
    """Reserve a sandbox and start booting it; returns at once with status `provisioning`.

    A replay of the same idempotency key returns the first response and makes nothing. Raises
    InvalidRequest, PlanRequired, InsufficientCredit, Conflict, WrongNode, Unavailable; then nothing
    was made.
    """

    # After the key: a replay gets its answer even if the owner's plan has changed since.
    def make(sandbox_id: str) -> tuple[Sandbox, list[OutboxMessage]]:
        template = _find_template(caller, request)
        size = _choose_size(caller, request, template)
        credit.check(deps.settings, caller.owner)
        quotas.check_sandbox(deps.settings, caller.owner)
        node = placement.claim_node(deps.settings, size.vcpus, size.mem_mb,
                                    _node_needed(template, caller.pinned_node))
        options, snapshot = request.options, None
        if template is not None:
            options, snapshot = _with_template(options, template), template.snapshot
        sandbox = insert(deps, NewSandbox(sandbox_id, caller, node, size.vcpus, size.mem_mb,
                                          options, snapshot))
        return sandbox, begin_boot(deps, sandbox, snapshot=snapshot)

    return make_once(deps, caller, CREATE_ROUTE, request.idempotency_key, _asked_for(request), make)


def _asked_for(request: CreateRequest) -> dict[str, Any]:
    """What the request asks for, for its hash: the same whether or not it spells out a default, and
    whatever credential it has."""
    options = replace(request.options,
                      skip_app_processes=request.options.is_raw(SandboxKind.API))
    return asdict(replace(request, options=options, idempotency_key=None))


def _find_template(caller: Caller, request: CreateRequest) -> ResolvedTemplate | None:
    if request.template is not None:
        raise Unavailable("Agent presets are not available in this version.")
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


def _node_needed(template: ResolvedTemplate | None, pinned_node: str | None) -> str | None:
    """The node the sandbox has to be on, if any: the caller's, which must be the one that the
    template needs."""
    if template is None:
        return pinned_node
    return placement.node_of_copy(template.snapshot, pinned_node)


def _with_template(options: LaunchOptions, found: ResolvedTemplate) -> LaunchOptions:
    """`options` with what the template starts (contract, Templates 4) and its environment; the
    caller's ports are added to its own."""
    template: Template = found.template
    ports = tuple(dict.fromkeys((*template.ports, *options.ports)))
    return replace(options, ports=ports, start_command=template.start_command,
                   readiness_port=template.readiness_port,
                   env=_inherited_env(found) | options.env)


def _inherited_env(found: ResolvedTemplate) -> dict[str, str]:
    """The environment of the sandbox that a private template was made of; a stranger's stays the
    stranger's."""
    if found.template.owner_id is None:
        return {}
    env: dict[str, str] = found.snapshot.env
    return env
