"""Ends whoever listens on the readiness port of a fork whose own start command is to listen there:
what came with the copied memory is not what was asked for.

TERM first, KILL after five seconds. The guest finds the process by what its kernel tells (a guest
may lack every tool for that), as root, and does nothing once the start command has run.
"""
import signal

from guest.client.deadline import Deadline
from guest.client.errors import AgentError, AgentTimeout, AgentUnreachable
from nodeworker.handlers.start_service import NotReady, mark_path
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim

LISTENER = "the listener of the copied memory to end"
# The limit is for slow guests: KILL works at once.
_TERM_S, _LIMIT_S = 5.0, 20.0
_STILL_LISTENS = 75
# Arguments: a file whose existence says that there is nothing to do, the port, the signal's number.
# The signal is given half a second to work.
_PROGRAM = f"""
import glob, os, sys, time
mark, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def listening():
    found = set()
    for table in glob.glob("/proc/net/tcp*"):
        with open(table) as lines:
            for part in map(str.split, list(lines)[1:]):
                if part[3] == "0A" and int(part[1].rsplit(":", 1)[1], 16) == port:
                    found.add("socket:[" + part[9] + "]")
    return found
sockets = set() if os.path.exists(mark) else listening()
found = set()
for path in glob.glob("/proc/[0-9]*/fd/*") if sockets else ():
    try:
        if os.readlink(path) in sockets:
            found.add(int(path.split("/")[2]))
    except OSError:
        pass
for pid in found - {{1, os.getpid()}}:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
for _ in range(5 if sockets else 0):
    time.sleep(0.1)
    sockets = listening()
    if not sockets:
        break
sys.exit({_STILL_LISTENS} if sockets else 0)
"""


def end_listener(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> None:
    """Return once nobody of the copied memory listens on the sandbox's readiness port; raises
    NotYet, and NotReady if it cannot be ended. Nothing to do unless the operation is to."""
    port = sandbox.readiness_port
    if not claimed.ends_listener or port is None:
        return
    waited_s = claimed.waited_for_s(LISTENER)
    number = signal.SIGTERM if waited_s < _TERM_S else signal.SIGKILL
    talk = Deadline(talk_s(claimed))
    mark = mark_path(sandbox.id, claimed.op_seq)
    command = ["python3", "-c", _PROGRAM, mark, str(port), str(int(number))]
    try:
        ended = deps.agent(sandbox).exec(command, timeout_ms=max(1, int(talk.left_s() * 1000)),
                                         grace_s=0.5)
        code = _STILL_LISTENS if ended.timed_out else ended.exit_code
    except (AgentTimeout, AgentUnreachable):
        code = _STILL_LISTENS
    except AgentError as error:
        raise NotReady(f"What listened on port {port} could not be ended: {error}") from error
    if code == 0:
        return
    if code == _STILL_LISTENS and waited_s < _LIMIT_S:
        raise NotYet(LISTENER)
    raise NotReady(f"What listened on port {port} when the memory was copied could not be ended.")
