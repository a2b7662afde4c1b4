"""Bodies of create, wake and extend, the list query, ports of previews, and what is shown of
sandboxes."""
import re
from functools import partial
from typing import Any

from marshmallow import ValidationError, post_load, validates_schema

from app.http.preferences import ASKED_MAX_S
from app.schemas import answers
from app.schemas.addresses import URL_MAX, Bootstrap, GitUrl
from app.schemas.answers import Answer
from app.schemas.fields import (
    Body,
    Command,
    Environment,
    Numeral,
    Port,
    Ports,
    ShapeNumber,
    Text,
    Whole,
    Word,
)
from app.schemas.launch_fields import (
    IdempotencyKey,
    PreferredModel,
    ReadinessPort,
    SkipAppProcesses,
)
from app.schemas.paging import PageQuery
from app.wiring import get_wired
from models.states import PresetState, SandboxKind, SandboxStatus
from services.llm.call_cost import dollars
from services.llm.sandbox_url import is_configured, proxy_url
from services.sandboxes.listing import Page
from services.sandboxes.requests import CreateRequest, LaunchOptions
from services.sandboxes.views import SandboxView
from services.templates.presets import PRESETS

# Nothing is billed and raw SSH not offered, and that is what answers say.
NULL, FALSE = answers.always(None), answers.always(False)
_WAIT_DEFAULT_S = 30
_IDLE_TIMEOUT_MAX_S = 86_400
_IdleTimeout = partial(Whole, "Idle timeout in seconds.", low=1, high=_IDLE_TIMEOUT_MAX_S)
# A builder of a deploy is no owner's to see.
_KINDS = [SandboxKind.API.value, SandboxKind.APP.value]


class CreateBody(Body):
    """Contract, Create body. Loads to `CreateRequest`."""

    ports = Ports()
    env = Environment()
    timeout = _IdleTimeout()
    size = Text("Name of a machine size; the plan's own unless given.", high=32)
    vcpus = ShapeNumber("Virtual CPUs, together with `memMb`, instead of `size`.")
    mem_mb = ShapeNumber("Memory in MB, together with `vcpus`, instead of `size`.")
    template_id = Text("A template to start from; not together with `template`.", high=128)
    template = Text(
        f"An agent preset: {', '.join(PRESETS)}; not together with `templateId`. The answer waits"
        " until it is ready or has failed. Makes a raw sandbox.", high=32)
    git_repository_url = GitUrl(
        "Where the sandbox's code comes from, for the record: http, https, ssh, git or"
        " user@host:path; no password, query or fragment.", high=URL_MAX)
    git_ref = Text("Branch, tag or commit of the import; needs `gitRepositoryUrl`.", high=256)
    preferred_model = PreferredModel(load_default="")
    skip_app_processes = SkipAppProcesses()
    agent_server_source = Command(
        "Starts the agent server: a line for the shell of the guest's user.")
    agent_bootstrap = Bootstrap(
        "For the agent server: `callbackUrl` and `callbackToken` (both or neither, never shown"
        " again), `readinessPort`, and whatever else it wants; at most 64 KiB. Raw sandboxes run"
        " none.")
    idempotency_key = IdempotencyKey()

    @validates_schema
    def _one_template(self, data: dict[str, Any], **_: Any) -> None:
        if "template" in data and "template_id" in data:
            raise ValidationError("template and templateId exclude each other")
        if "template" in data and data["template"] not in PRESETS:
            raise ValidationError(f"unknown preset; presets are {', '.join(PRESETS)}", "template")

    @validates_schema
    def _ref_of_a_repository(self, data: dict[str, Any], **_: Any) -> None:
        if "git_ref" in data and "git_repository_url" not in data:
            raise ValidationError("needs gitRepositoryUrl", "gitRef")

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> CreateRequest:
        own = {name: data.pop(name) for name in _CREATE_FIELDS if name in data}
        return CreateRequest(options=LaunchOptions(**data), **own)


_CREATE_FIELDS = ("size", "vcpus", "mem_mb", "template_id", "template", "idempotency_key")


class WakeBody(Body):
    """Optional body of wake."""

    ports = Ports()
    readiness_port = ReadinessPort(load_default=None)


class ExtendBody(Body):
    """Optional body of extend: a new idle timeout."""

    timeout = _IdleTimeout(load_default=None)


class HibernateBody(Body):
    """Hibernate takes no fields; an empty object is welcome."""


class GetQuery(Body):
    """Query of one sandbox: what to wait for before it is answered (our choice)."""

    wait_for = Word("Answer once it has this status, can have it no more, or the time is up.",
                    [status.value for status in SandboxStatus], load_default=None)
    timeout_s = Numeral(f"Seconds to wait at most, with `waitFor`; {_WAIT_DEFAULT_S} without it.",
                        high=ASKED_MAX_S)

    @validates_schema
    def _timeout_needs_wait_for(self, data: dict[str, Any], **_: Any) -> None:
        if "timeout_s" in data and data["wait_for"] is None:
            raise ValidationError("needs waitFor", "timeoutS")

    @post_load
    def _complete(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        wanted = data["wait_for"] and SandboxStatus(data["wait_for"])
        return {"timeout_s": _WAIT_DEFAULT_S, **data, "wait_for": wanted}


class ListQuery(PageQuery):
    """Query of the list: paging, and `status` and `kind` to ask for some only (our choice)."""

    status = Word("Only sandboxes in this state; without it all but the stopped ones.",
                  [status.value for status in SandboxStatus], load_default=None)
    kind = Word("Only sandboxes of this kind.", _KINDS,
                load_default=None)


def _llm_proxy_url(shown: SandboxView) -> str | None:
    """Made for each answer, so that no answer that is kept for a replay holds the secret in it."""
    if shown.status == SandboxStatus.STOPPED:
        return None
    return proxy_url(get_wired().settings, shown.id)


class SandboxAnswer(Answer):
    """A sandbox."""

    id = answers.Text()
    status = answers.one_of(
        SandboxStatus, "`provisioning` becomes `running`, or `stopped` if the boot fails.")
    cwd = answers.Text("Where commands start.")
    vm_ip = answers.Text("Address of the guest on its node.", data_key="vmIP")
    port_map = answers.Shown(
        "Port of the node to port of the guest.",
        openapi={
            "type": "object", "propertyNames": {"pattern": "^[0-9]{1,5}$"},
            "additionalProperties": answers.PORT
        },
        show=lambda ports: {str(host): guest for host, guest in sorted(ports.items())})
    created_at = answers.Time()
    preferred_model = answers.Text("May be empty.")
    node_id = answers.Text("The node that holds the sandbox; what `X-Svc-Node` takes.")
    llm_proxy_url = answers.Text(
        "Base URL of its LLM proxy, which answers to this sandbox only; left out where there is no"
        " proxy, and once it is stopped.", read=_llm_proxy_url, optional=True)
    error = answers.Text("Why the boot failed, its service is not ready, or its files are gone.",
                         optional=True)
    template = answers.Text("The agent preset it was made with; its copies have it too.",
                            optional=True)
    template_status = answers.one_of(
        PresetState, "How the preset came out; left out until that is known.", optional=True)
    install_log_path = answers.Text("In the guest: what was done to make the preset ready.",
                                    optional=True)
    serve_port = answers.Shown("Port of the guest with the preset's web UI.",
                               openapi=answers.PORT, optional=True)
    serve_log_path = answers.Text("In the guest: the log of the web UI.", optional=True)
    bootstrap_error = answers.Text(
        "Why the preset is not ready; the sandbox is kept for inspection.", optional=True)


class SandboxListEntryAnswer(Answer):
    """A sandbox in the list."""

    id = answers.Text()
    slug = answers.Text("The `projectSlug` it was made with.", null=True, read="project_slug")
    project = answers.Text(null=True, read="project_slug")
    project_id = answers.Text(null=True)
    app_id = answers.Text(null=True)
    kind = answers.Text("`api` for what was made with an API key.",
                        openapi={"type": "string", "enum": _KINDS})
    status = answers.one_of(SandboxStatus)
    region = answers.Text("Name of the node.", read="node_id")
    vcpus = answers.Count()
    mem_mb = answers.Count()
    created_at = answers.Time()
    last_active_at = answers.Time()
    usage_seconds = answers.Seconds(read="wall_clock_ms")
    usage_cost = answers.Amount(null=True, read=NULL)
    compute_cost = answers.Cost("Estimate at list rates.", read="cost")
    ssh_enabled = answers.Flag(read=FALSE)
    ssh_host = answers.Text(null=True, read=NULL)
    ssh_user = answers.Text(null=True, read=NULL)
    ssh_command = answers.Text(null=True, read=NULL)
    ssh_keys_configured = answers.Flag(read=FALSE)


def _total_llm_cost(shown: Page) -> float | None:
    return dollars(shown.llm.cost) if is_configured(get_wired().settings) else None


class SandboxListAnswer(Answer):
    """A page of the owner's sandboxes, newest first, and totals."""

    sandboxes = answers.Inner(SandboxListEntryAnswer, many=True, read="items")
    total_usage_seconds = answers.Seconds(read="used.wall_clock_ms")
    total_compute_cost = answers.Cost(read="used.cost")
    compute_cost_billed = answers.Flag("`false` while billing is in shadow mode.", read=FALSE)
    total_llm_cost = answers.Amount(
        "US dollars, of calls whose price is known; `null` where there is no LLM proxy.",
        null=True, read=_total_llm_cost)
    total = answers.Count()
    limit = answers.Count()
    offset = answers.Count()


class UsageAnswer(Answer):
    """What a sandbox has used since it was made, as its host accounts for it; it only grows."""

    cpu_ms = answers.Count("CPU time of its virtual machine, boots and wakes included.")
    wall_clock_ms = answers.Count("Time in `running`.")
    usage_seconds = answers.Seconds("`wallClockMs` in seconds.", read="wall_clock_ms")
    usage_cost = answers.Amount("`null` while billing is in shadow mode.", null=True, read=NULL)
    compute_cost = answers.Cost("Estimate at list rates.", read="cost")
    sampled_at = answers.Time(
        "When it was last read; a running sandbox is read every few seconds.", null=True)
    llm_calls = answers.Count("Its calls of the LLM proxy that have ended.", read="llm.calls")
    llm_input_tokens = answers.Count("Neither read from a cache nor written to one.",
                                     read="llm.input_tokens")
    llm_cached_tokens = answers.Count("Input that was read from a cache.", read="llm.cached_tokens")
    llm_cache_write_tokens = answers.Count("Input that was written to a cache.",
                                           read="llm.cache_write_tokens")
    llm_output_tokens = answers.Count("Reasoning included.", read="llm.output_tokens")
    llm_cost = answers.Amount("US dollars; `null` if the price of no call is known.", null=True,
                              read="llm.known_cost")


class PortInPath(Port):
    """A port of the guest in decimal digits."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        if not re.fullmatch(r"[1-9]\d{0,4}", value, re.ASCII):
            raise ValidationError("must be a port number from 1 to 65535")
        return super()._deserialize(int(value), attr, data, **options)


class PreviewTarget(Body):
    """The part of the address after `url/`."""

    port = PortInPath(required=True)


class PreviewAnswer(Answer):
    """Where a port of a sandbox is found on the web. Whoever knows the address may come in."""

    url = answers.Text("The same for the sandbox's life; a fork has its own.")
