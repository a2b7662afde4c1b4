"""The agent server of a sandbox, from this host: started in each guest that boots, ended in a copy
before it is used.

What it needs goes into the guest as a file on /run, where it lives as long as the guest's RAM; the
callback token is in no command line, no log and no queue. The guest's side is `guest/agentserver`.
"""
import json
from typing import Any

from guest.client.agent_client import AgentClient
from guest.client.deadline import Deadline
from guest.client.errors import AgentError, AgentRefused, AgentTimeout, AgentUnreachable
from models.database import connection
from nodeworker.faults import fault
from nodeworker.handlers.start_service import NotReady
from nodeworker.hypervisor.driver import DriverError
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim
from services.sandboxes import agent_servers
from services.sandboxes.agent_servers import AgentServerSpec

COMMAND = "/usr/local/sbin/svc-agent-server"
# Guests of every age know the files by these names.
CONFIGURATION_FILE = "/run/svc-agent/launch.json"
STARTED_FILE = "/run/svc-agent/started"
SERVER, OLD_SERVER = "its agent server to be started", "its source's agent server to end"


class StillServing(DriverError):
    """A copy still runs the agent server of its source: nobody may have it. The text may be shown
    to the owner."""


def end_copied_server(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode,
                      copied_from: str) -> None:
    """End the agent server that came with the memory of the snapshot `copied_from`, if its source
    had one; raises NotYet, StillServing."""
    with connection():
        inherited = agent_servers.ran_at_capture(copied_from)
    if not inherited:
        return
    try:
        code, cause = run(deps.agent(sandbox), "stop", Deadline(talk_s(claimed))), None
    except AgentError as error:
        code, cause = None, error
    if code == 0:
        return
    # A slow guest's systemd may answer its own command too late, not only the guest the host.
    if claimed.waited_for_s(OLD_SERVER) < deps.settings.readiness_wait_s:
        raise NotYet(OLD_SERVER) from cause
    raise StillServing("The agent server of the sandbox's source could not be ended in it."
                       ) from cause


def start_agent_server(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> None:
    """Have the sandbox's agent server started, if it has one that was not started in this RAM's
    lifetime; does not wait until it is ready. Raises NotYet, NotReady.

    Called after each boot, fork and wake, and again should this process die before the end of that.
    """
    if sandbox.is_raw:
        return
    with connection():
        kept = agent_servers.find(sandbox.id)
    if kept is None:
        return
    agent, talk = deps.agent(sandbox), Deadline(talk_s(claimed))
    try:
        if not _is_started(agent, talk):
            hand_over(agent, configuration(sandbox, kept), talk)
    except (AgentTimeout, AgentUnreachable) as error:
        if claimed.waited_for_s(SERVER) < deps.settings.readiness_wait_s:
            raise NotYet(SERVER) from error
        raise NotReady(
            "The agent server could not be started: the guest did not answer.") from error
    except AgentError as error:
        # The text quotes nothing of the configuration.
        raise NotReady(
            "The agent server could not be started: the guest did not take its configuration."
        ) from error


def _is_started(agent: AgentClient, talk: Deadline) -> bool:
    try:
        agent.read_file(STARTED_FILE, max_bytes=0, timeout_s=talk.left_s())
    except AgentRefused:
        return False
    return True


def configuration(sandbox: SandboxOnNode, kept: AgentServerSpec) -> dict[str, Any]:
    """What `guest/agentserver/start_agent_server.py` reads of a sandbox."""
    model = {"SVC_PREFERRED_MODEL": sandbox.preferred_model} if sandbox.preferred_model else {}
    return {
        "sandboxId": sandbox.id, "source": kept.source, "bootstrap": kept.bootstrap,
        "cwd": sandbox.cwd, "env": model | sandbox.process_env
    }


def hand_over(agent: AgentClient, content: dict[str, Any], talk: Deadline) -> None:
    """Put the configuration into the guest and start what it says; raises AgentError, NotReady."""
    agent.write_file(CONFIGURATION_FILE, json.dumps(content).encode(), 0o600,
                     timeout_s=talk.left_s())
    fault("agent_server.written")
    code = run(agent, "start", talk)
    if code:
        raise NotReady(
            f"The agent server could not be started: the guest's command for it ended with {code}.")
    fault("agent_server.started")


def run(agent: AgentClient, action: str, talk: Deadline) -> int:
    """Run the guest's own command; returns its exit code. Raises AgentError."""
    left_s = talk.left_s()
    ended = agent.exec([COMMAND, action], timeout_ms=max(1, int(left_s * 1000)), grace_s=0.5)
    if ended.timed_out:
        raise AgentTimeout(f"the guest's {COMMAND} {action} did not end in time")
    return ended.exit_code
