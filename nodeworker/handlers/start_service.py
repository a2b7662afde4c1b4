"""Starts the service of a sandbox by its start command, and waits until it is ready."""
from guest.client.agent_client import AgentClient
from guest.client.deadline import Deadline
from guest.client.errors import AgentError, AgentRefused, AgentUnauthorized
from nodeworker.error_texts import printable
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim

SERVICE = "its service to be ready"
START_LOG = "/var/log/svc/start.log"
_TAIL_BYTES = 1000
# A service that listens within this time costs no second look (seconds).
_FIRST_LOOK_S = 0.3
# Arguments: a lock, the operation's number and the owner's line. What was started holds the lock as
# long as it lives, so that nothing starts a second one beside it; and an operation that is run
# several times starts it once.
_START = (
    f'exec >>{START_LOG} 2>&1 9>"$0"; flock -n 9 || exit 0; [ -e "$0.$1" ] && exit 0;'
    ' rm -f "$0".*; : >"$0.$1"; eval "$2"'
)


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


def lock_path(sandbox_id: str) -> str:
    """The file in the guest that its service holds locked."""
    return f"/run/svc-start-{sandbox_id}.lock"


def mark_path(sandbox_id: str, op_seq: int) -> str:
    """The file in the guest that says that this operation has started the service."""
    return f"{lock_path(sandbox_id)}.{op_seq}"


def start_service(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> None:
    """Return once something listens on the readiness port of the operation, else of the wake spec;
    raises NotYet, and NotReady once SVC_READINESS_WAIT_S is over.

    1. If the wake spec's port is open, its service came with the memory (a wake, a fork, a template
    in its own shape): it is not started again, unless this is to replace it. 2. Otherwise (a cold
    boot, a snapshot taken without it) the start command runs, unless an earlier run of this
    operation has started it, or it lives. 3. The port is looked at.
    """
    port = claimed.readiness_port or sandbox.readiness_port
    if port is None:
        return
    agent, talk = deps.agent(sandbox), Deadline(talk_s(claimed))
    wait_s = deps.settings.readiness_wait_s
    try:
        if _is_ready(agent, talk, claimed, sandbox, port):
            return
        why = f"Nothing listened on port {port} within {wait_s:g} s."
    except (AgentRefused, AgentUnauthorized) as error:
        raise NotReady(f"The start command could not be run: {error}",
                       _last_output(agent)) from error
    except AgentError:
        why = f"The guest did not say within {wait_s:g} s whether something listens on port {port}."
    if claimed.waited_for_s(SERVICE) < wait_s:
        raise NotYet(SERVICE)
    where = f" The start command's output is in {START_LOG}." if sandbox.start_command else ""
    raise NotReady(f"{why}{where}", _last_output(agent))


def _is_ready(agent: AgentClient, talk: Deadline, claimed: Claim, sandbox: SandboxOnNode,
              port: int) -> bool:
    own = sandbox.readiness_port
    is_up = own is not None and agent.wait_port(own, 0, grace_s=talk.left_s())
    if is_up and own == port and not claimed.ends_listener:
        return True
    if (sandbox.start_command and (claimed.ends_listener or not is_up)
            and not _was_started(agent, talk, claimed, sandbox)):
        _start(agent, talk, claimed, sandbox, sandbox.start_command)
        fault("service.started")
    return agent.wait_port(port, _FIRST_LOOK_S, grace_s=talk.left_s())


def _was_started(agent: AgentClient, talk: Deadline, claimed: Claim,
                 sandbox: SandboxOnNode) -> bool:
    """Whether an earlier look has started the service; a start that does nothing leaves a log in
    the guest all the same, and there may be hundreds of looks."""
    if not claimed.waited_for_s(SERVICE):
        return False  # the first look need not ask
    try:
        agent.read_file(mark_path(sandbox.id, claimed.op_seq), max_bytes=0, timeout_s=talk.left_s())
    except AgentRefused:
        return False
    return True


def _start(agent: AgentClient, talk: Deadline, claimed: Claim, sandbox: SandboxOnNode,
           start_command: str) -> None:
    command = [
        "/bin/bash", "-c", _START, lock_path(sandbox.id), str(claimed.op_seq), start_command
    ]
    started = agent.exec(command, cwd=sandbox.cwd, env=sandbox.process_env, detached=True,
                         timeout_ms=1, grace_s=talk.left_s())
    if started.exit_code != 0:
        raise NotReady(f"The start command could not be run: exit code {started.exit_code}.")


def _last_output(agent: AgentClient) -> str:
    """The end of the log as one printable line; empty if there is none."""
    try:
        said = agent.exec(["tail", "-c", str(_TAIL_BYTES), START_LOG], timeout_ms=1000,
                          cap_bytes=_TAIL_BYTES, grace_s=1.0).stdout
    except AgentError:
        return ""
    return " ".join(printable(said.decode("utf-8", "replace")).split())
