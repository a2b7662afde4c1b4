"""Starts the service of a sandbox by its start command, and waits until it is ready."""
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused, AgentTimeout, AgentUnauthorized
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode

START_LOG = "/var/log/svc/start.log"
_TAIL_BYTES = 1000
# Arguments: a lock and the owner's line. What was started holds the lock as long as it lives, so
# that a repeated operation does not start a second one beside it.
_START = f'exec >>{START_LOG} 2>&1 9>"$0"; flock -n 9 || exit 0; eval "$1"'


class NotReady(DriverError):
    """The start command failed or its port did not open in time.

    The text is for the owner; `output`, what the command said last, for nobody else: it may hold
    anything.
    """

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output

    def owner_text(self) -> str:
        """All the owner may know."""
        return f"{self} It said last: {self.output}" if self.output else str(self)


def start_service(deps: NodeDeps, sandbox: SandboxOnNode) -> None:
    """Return once the wake spec's readiness port takes connections, starting the service if need
    be; raises NotReady.

    1. A port that is open already belongs to a service that came with the memory (a wake, a fork, a
    template in its own shape): it is not started again. 2. Otherwise (a cold boot, a snapshot taken
    without it) the start command runs, unless an earlier attempt has started it and it lives. 3.
    The port is waited for.
    """
    port, wait_s = sandbox.readiness_port, deps.settings.readiness_wait_s
    if port is None:
        return
    agent = deps.agent(sandbox)
    try:
        if agent.wait_port(port, timeout_s=0):
            return
        if sandbox.start_command:
            _start(agent, sandbox, sandbox.start_command)
            fault("service.started")
        if agent.wait_port(port, timeout_s=wait_s):
            return
    except (AgentRefused, AgentTimeout, AgentUnauthorized) as error:
        raise NotReady(f"The start command could not be run: {error}",
                       _last_output(agent)) from error
    where = f" The start command's output is in {START_LOG}." if sandbox.start_command else ""
    raise NotReady(f"Nothing listened on port {port} within {wait_s:g} s.{where}",
                   _last_output(agent))


def _start(agent: AgentClient, sandbox: SandboxOnNode, start_command: str) -> None:
    command = [
        "/bin/bash", "-c", _START, f"/run/svc-start-{sandbox.id}.lock", start_command
    ]
    started = agent.exec(command, cwd=sandbox.cwd, env=sandbox.env, detached=True)
    if started.exit_code != 0:
        raise NotReady(f"The start command could not be run: exit code {started.exit_code}.")


def _last_output(agent: AgentClient) -> str:
    """The end of the log as one printable line; empty if there is none."""
    try:
        said = agent.exec(["tail", "-c", str(_TAIL_BYTES), START_LOG], timeout_ms=5000,
                          cap_bytes=_TAIL_BYTES).stdout
    except AgentError:
        return ""
    return " ".join(
        "".join(
            sign if sign.isprintable() else " " for sign in said.decode("utf-8", "replace")
        ).split()
    )
