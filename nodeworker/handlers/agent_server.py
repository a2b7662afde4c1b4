"""The agent server of a sandbox, from this host: started in each guest that boots, ended in a copy
before it is used.

What it needs goes into the guest as a file on /run, where it lives as long as the guest's RAM; the
callback token is in no command line, no log and no queue. The guest's side is `guest/agentserver`.
"""
import json
from typing import Any

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused
from models.database import connection
from nodeworker.faults import fault
from nodeworker.handlers.start_service import NotReady
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.sandboxes import agent_servers
from services.sandboxes.agent_servers import AgentServerSpec

COMMAND = "/usr/local/sbin/svc-agent-server"
# Guests of every age know the files by these names.
CONFIGURATION_FILE = "/run/svc-agent/launch.json"
STARTED_FILE = "/run/svc-agent/started"


def start_agent_server(deps: NodeDeps, sandbox: SandboxOnNode, *,
                       copied_from: str | None = None) -> None:
    """Have the sandbox's agent server started, if it has one that was not started in this RAM's
    lifetime, and its source's ended if its RAM is that of a snapshot (`copied_from`); does not wait
    until it is ready. Raises NotReady.

    Called after each boot, fork and wake, and again should this process die before the end of that.
    """
    with connection():
        kept = agent_servers.find(sandbox.id)
        inherited = copied_from is not None and agent_servers.ran_at_capture(copied_from)
    agent = deps.agent(sandbox)
    if inherited:
        run(agent, "stop")
    if kept is not None and not _is_started(agent):
        hand_over(agent, configuration(sandbox, kept))


def _is_started(agent: AgentClient) -> bool:
    try:
        agent.read_file(STARTED_FILE, max_bytes=0)
    except AgentRefused:
        return False
    except AgentError as error:
        raise NotReady(
            "The agent server could not be started: the guest did not answer.") from error
    return True


def configuration(sandbox: SandboxOnNode, kept: AgentServerSpec) -> dict[str, Any]:
    """What `guest/agentserver/start_agent_server.py` reads of a sandbox."""
    model = {"SVC_PREFERRED_MODEL": sandbox.preferred_model} if sandbox.preferred_model else {}
    return {
        "sandboxId": sandbox.id, "source": kept.source, "bootstrap": kept.bootstrap,
        "cwd": sandbox.cwd, "env": model | sandbox.env
    }


def hand_over(agent: AgentClient, content: dict[str, Any]) -> None:
    """Put the configuration into the guest and start what it says; raises NotReady, whose text
    quotes nothing of it."""
    try:
        agent.write_file(CONFIGURATION_FILE, json.dumps(content).encode(), 0o600)
    except AgentError as error:
        raise NotReady(
            "The agent server could not be started: the guest did not take its configuration."
        ) from error
    fault("agent_server.written")
    run(agent, "start")
    fault("agent_server.started")


def run(agent: AgentClient, action: str) -> None:
    """Run the guest's own command; raises NotReady."""
    try:
        code = agent.exec([COMMAND, action]).exit_code
    except AgentError as error:
        raise NotReady(
            "The agent server could not be started: the guest did not answer.") from error
    if code:
        raise NotReady(
            f"The agent server could not be started: the guest's command for it ended with {code}.")
