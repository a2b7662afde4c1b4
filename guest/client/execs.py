"""Runs commands in a guest and collects their output, up to a cap whatever the guest sends."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guest.agent.protocol import DEFAULT_CAP_BYTES, DEFAULT_TIMEOUT_MS, STDERR, STDOUT
from guest.client.caller import AgentCaller, integer
from guest.client.deadline import Deadline
from guest.client.errors import AgentProtocolError
from guest.client.results import ExecResult

# On top of a command's own time limit: for the connection, the kill at its end and a slow guest.
EXEC_GRACE_S = 10.0


class ExecCalls(AgentCaller):
    """The agent's `exec`."""

    def exec(self, argv: Sequence[str] | None = None, *, shell: str | None = None,
             cwd: str | None = None, env: Mapping[str, str] | None = None,
             timeout_ms: int = DEFAULT_TIMEOUT_MS, detached: bool = False,
             cap_bytes: int = DEFAULT_CAP_BYTES, grace_s: float = EXEC_GRACE_S,
             wanted: Callable[[], bool] | None = None, keep: bool = False,
             take: Callable[[int], bool] = lambda _: True) -> ExecResult:
        """Run a program (`argv`) or a line of bash (`shell`) as root and wait for it, unless it is
        `detached`.

        The call ends at the latest `grace_s` after the command's own time limit.
        `wanted` is asked about once a second while the guest is silent; AgentUnreachable as soon
        as it says False. `take` is asked for room for each piece of output; once it says False,
        the output is cut there. `keep` leaves the connection open for the next such call, which
        must come soon (REQUEST_WAIT_S) and not from another thread meanwhile, or for `close`.
        """
        request = {
            "argv": None if argv is None else list(argv), "shell": shell, "cwd": cwd,
            "env": None if env is None else dict(env), "timeoutMs": timeout_ms,
            "detached": detached, "capBytes": cap_bytes, "keep": keep or None
        }
        outputs = {kind: _Output(cap_bytes, take) for kind in (STDOUT, STDERR)}
        deadline = Deadline(timeout_ms / 1000 + grace_s)
        with self._go_on(deadline, wanted) as conversation:
            conversation.ask(self._request("exec", request))
            for kind, payload in conversation.frames():
                if kind not in outputs:
                    raise AgentProtocolError(
                        f"the guest agent sent a frame of type {kind} in the reply of an exec")
                outputs[kind].add(payload)
            result = _result(conversation.outcome, outputs[STDOUT], outputs[STDERR])
            if keep:
                self._keep(conversation)
            return result


class _Output:
    """Collects one stream, as long as there is room for it."""

    def __init__(self, cap_bytes: int, take: Callable[[int], bool]) -> None:
        self._left_bytes = cap_bytes
        self._take = take
        self._content = bytearray()
        self.truncated = False

    def add(self, payload: bytes) -> None:
        """Keep a piece; raises AgentProtocolError beyond the cap, which the agent was told."""
        self._left_bytes -= len(payload)
        if self._left_bytes < 0:
            raise AgentProtocolError("the guest agent sent more output than it was asked for")
        if self.truncated or not self._take(len(payload)):
            self.truncated = True
        else:
            self._content += payload

    def content(self) -> bytes:
        return bytes(self._content)


def _result(reply: dict[str, Any], stdout: _Output, stderr: _Output) -> ExecResult:
    log_path = reply.get("logPath")
    return ExecResult(
        stdout=stdout.content(), stderr=stderr.content(), exit_code=integer(reply, "exitCode"),
        timed_out=reply.get("timedOut") is True,
        stdout_truncated=stdout.truncated or reply.get("stdoutTruncated") is True,
        stderr_truncated=stderr.truncated or reply.get("stderrTruncated") is True,
        pid=None if reply.get("pid") is None else integer(reply, "pid"),
        log_path=None if log_path is None else str(log_path)[:4096],
    )
