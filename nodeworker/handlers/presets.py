"""Makes the agent preset of a new sandbox ready, or says why it cannot be; the sandbox is kept
either way (contract, Create rules 3 and 4).

1. Before the machine is made: has this node an image with presets? One that is being built is
waited for, as a row. 2. In the machine, before anything else of the sandbox runs:
`guest/presets/activate.py` is started; a command in the guest waits for the lock that it holds,
and then its outcome, a file on /run, is looked for. A later run of the handler that finds none,
though nobody holds the lock, starts it again; it does nothing anew. 3. A web UI is the sandbox's
service, which `start_service.py` starts here and at every cold boot; of a preset that failed it is
not started. A copy of a machine is not made ready: it has what its source had.
"""
import json
import logging
import time
from dataclasses import replace

from guest.client.agent_client import AgentClient
from guest.client.deadline import Deadline
from guest.client.errors import AgentError, AgentRefused, AgentTimeout, AgentUnreachable
from guest.presets import GUEST_DIR
from guest.presets.activate import LOCK, STATE_DIR
from models.database import connection
from models.states import PresetState
from nodeworker.error_texts import printable
from nodeworker.faults import fault
from nodeworker.handlers.start_programs import WAITS
from nodeworker.handlers.start_service import NotReady
from nodeworker.hypervisor.driver import RunningVm
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim
from services.sandboxes import outcomes
from services.templates.presets import PRESETS

log = logging.getLogger(__name__)
IMAGE, PRESET = "the agent presets of its node to be built", "its agent preset to be ready"
ACTIVATE = f"{GUEST_DIR}/activate.py"
_OUTCOME_BYTES = 64 * 1024
# Of the time for talk this is kept for the look at the outcome; the pause is for a start that has
# not come to its lock yet, or has died.
_LOOK_S, _PAUSE_S = 0.2, 0.05
# The part of its node's time that the guest takes before it gives up: its reason is the better one.
_GUESTS_PART = 0.9


def find_image(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> SandboxOnNode:
    """The sandbox, whose preset has failed by now if its node has none: its row says so. Raises
    NotYet while they are being built."""
    if sandbox.preset is None or sandbox.preset_state is not None:
        return sandbox
    facts = deps.driver.presets_facts()
    if facts.ready or deps.driver.inspect(sandbox.id) is not None:
        return sandbox
    error = facts.failed.get(sandbox.preset)
    if error is None and claimed.waited_for_s(IMAGE) < deps.settings.preset_build_wait_s:
        raise NotYet(IMAGE, begun=False)
    failed = _failed(sandbox, error or f"The agent presets of node {claimed.node_id} are still"
                     " being built; `make status` shows how far.")
    with connection():
        outcomes.report_columns(claimed, _columns(failed))
    fault("preset.given_up")
    return failed


def tell_in_guest(deps: NodeDeps, sandbox: SandboxOnNode) -> None:
    """Write into the install log of a new machine that has no presets why that is so."""
    if sandbox.preset is None or sandbox.preset_error is None:
        return
    try:
        deps.agent(sandbox).write_file(PRESETS[sandbox.preset].install_log_path,
                                       f"{sandbox.preset_error}\n".encode(), timeout_s=2.0)
    except AgentError as error:
        log.warning("the install log of %s is not written: %s", sandbox.id, error)


def make_ready(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode,
               vm: RunningVm) -> SandboxOnNode:
    """The sandbox, whose preset has become ready or has failed in its new machine. Raises
    NotYet."""
    if sandbox.preset is None or sandbox.preset_state is not None:
        return sandbox
    limit_s = deps.settings.preset_verify_s
    agent, talk = deps.agent(sandbox), Deadline(talk_s(claimed))
    try:
        began_before = claimed.waits_for in (PRESET, *WAITS) and not vm.cold
        found = _await_outcome(agent, talk, sandbox.preset) if began_before else None
        if found is None:  # nothing has begun, or what was to begin was lost, or has died
            _start(agent, talk, sandbox.preset, limit_s * _GUESTS_PART)
            fault("preset.started")
        while found is None and (found := _await_outcome(agent, talk, sandbox.preset)) is None:
            time.sleep(_PAUSE_S)
    except (AgentTimeout, AgentUnreachable):
        if claimed.waited_for_s(PRESET) < limit_s:
            raise NotYet(PRESET) from None
        found = f"The guest did not say within {limit_s:g} s whether it is ready."
    except AgentError as error:
        found = f"The guest cannot make it ready: {error}"
    fault("preset.ended")
    if found:
        log.warning("the preset %s of %s failed: %s", sandbox.preset, sandbox.id, found)
        return _failed(sandbox, found)
    return replace(sandbox, preset_state=PresetState.READY)


def columns(sandbox: SandboxOnNode, unready: NotReady | None) -> dict[str, object]:
    """What the row of a new machine gets, once all is started that was to be; `unready` says why
    its service, which may be the preset's, is not ready."""
    if sandbox.preset is None:
        return {}
    if unready is None or sandbox.preset_state is PresetState.FAILED or not _serves(sandbox):
        return _columns(sandbox)
    return _columns(sandbox) | {"preset_state": PresetState.FAILED,
                                "preset_error": printable(unready.owner_text())}


def _columns(sandbox: SandboxOnNode) -> dict[str, object]:
    return {
        "preset_state": sandbox.preset_state, "preset_error": sandbox.preset_error,
        "start_command": sandbox.start_command, "readiness_port": sandbox.readiness_port
    }


def _failed(sandbox: SandboxOnNode, error: str) -> SandboxOnNode:
    made = replace(sandbox, preset_state=PresetState.FAILED, preset_error=printable(error))
    return replace(made, start_command=None, readiness_port=None) if _serves(made) else made


def _serves(sandbox: SandboxOnNode) -> bool:
    assert sandbox.preset is not None
    service = PRESETS[sandbox.preset].service
    return service is not None and service.start_command == sandbox.start_command


def _start(agent: AgentClient, talk: Deadline, slug: str, limit_s: float) -> None:
    command = ["python3", "-IS", ACTIVATE, slug, f"{limit_s:g}"]
    agent.exec(command, detached=True, timeout_ms=1, grace_s=talk.left_s())


def _await_outcome(agent: AgentClient, talk: Deadline, slug: str) -> str | None:
    """What `_find_outcome` finds once nothing makes a preset ready; raises AgentTimeout if that is
    not so by the time that hardly any is left."""
    wait_s = max(talk.left_s() - _LOOK_S, 0.0)
    waited = agent.exec(["flock", "--shared", "--wait", f"{wait_s:.2f}", LOCK, "true"],
                        timeout_ms=max(int(wait_s * 1000), 1), grace_s=_LOOK_S)
    found = _find_outcome(agent, talk, slug)
    if found is None and waited.exit_code != 0:
        raise AgentTimeout("the guest still makes the preset ready")
    return found


def _find_outcome(agent: AgentClient, talk: Deadline, slug: str) -> str | None:
    """Why the preset failed, empty if it is ready; None if the guest does not know yet."""
    path = f"{STATE_DIR}/{slug}.json"
    try:
        content = agent.read_file(path, _OUTCOME_BYTES, timeout_s=talk.left_s())
    except AgentRefused:
        return None
    try:
        return str(json.loads(content)["error"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "The guest's outcome cannot be read."
