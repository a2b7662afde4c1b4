"""Starts the command of an `exec`, says why one cannot be started, and makes the reply."""
import os
import subprocess
from typing import Any

from .protocol import NOT_EXECUTABLE_EXIT_CODE, NOT_FOUND, NOT_FOUND_EXIT_CODE, Refused
from .requests import ExecRequest


class CannotStart(Exception):
    """The program does not exist or cannot be executed; the caller gets a code and a sentence, as
    from a shell."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


def start(request: ExecRequest, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start the command; raises CannotStart, or Refused if its working directory does not exist."""
    try:
        process = subprocess.Popen(
            request.argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=request.cwd,
            env=request.env, start_new_session=True, bufsize=0,
        )
    except OSError as error:
        raise _explain(request, error) from error
    expose_to_oom_killer(process.pid)
    return process


def _explain(request: ExecRequest, error: OSError) -> Exception:
    """What a failed start means to the caller: a missing directory is a refusal, a bad program an
    exit code."""
    if not os.path.isdir(request.cwd):
        return Refused(NOT_FOUND, f"the working directory {request.cwd} does not exist")
    program = request.argv[0]
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CannotStart(NOT_FOUND_EXIT_CODE, f"{program}: not found")
    return CannotStart(NOT_EXECUTABLE_EXIT_CODE, f"{program}: cannot be executed: {error.strerror}")


def expose_to_oom_killer(pid: int) -> None:
    """The agent is spared by the kernel's out-of-memory killer; what it runs for callers must not
    inherit that."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as score:
            score.write(b"0")
    except OSError:
        pass  # it has ended already


def exec_reply(exit_code: int, *, pid: int | None = None, timed_out: bool = False,
               stdout_truncated: bool = False, stderr_truncated: bool = False,
               log_path: str | None = None) -> dict:
    """The JSON of an `exec`'s RESULT."""
    reply: dict[str, Any] = {
        "exitCode": exit_code, "timedOut": timed_out, "stdoutTruncated": stdout_truncated,
        "stderrTruncated": stderr_truncated, "pid": pid,
    }
    if log_path is not None:
        reply["logPath"] = log_path
    return reply
