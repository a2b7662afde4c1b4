"""Starts the command of an `exec`, says why one cannot be started, and makes the reply.

A command that is waited for is watched by `execution.py`. A detached one writes into a log file of
its own and is left alone.

A detached Python program of the service itself runs in a fork of the agent. An emulated guest takes
half a second to start an interpreter and import what such a program needs; the agent has it all. To
the program it is as if it had been started: arguments, environment, directory, a session of its
own, none of the agent's descriptors.

A rehearsal is an empty command that nobody asked for: the emulator translates the guest's code anew
after every restore, and the first command pays for it.
"""
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from typing import Any

from .files import refuse_os_errors
from .loop import Loop
from .offload import close_inherited, reap_when_dead
from .protocol import NOT_EXECUTABLE_EXIT_CODE, NOT_FOUND, NOT_FOUND_EXIT_CODE, Refused
from .requests import BASE_ENV, ExecRequest

LOG_DIR = "/var/log/svc"
_PYTHON, _OWN_PROGRAMS = ["python3", "-IS"], "/opt/svc/"


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


def start_detached(loop: Loop, request: ExecRequest, root: str) -> dict:
    """Start the command with its output in a log file and leave it alone; the reply says where both
    are."""
    log_path, log = _open_log(root)
    try:
        start_it = _start_in_fork if _is_own_program(request.argv, root) else _start_program
        pid = start_it(request, log)
    except CannotStart as failure:
        with refuse_os_errors(log_path):
            os.write(log, failure.sentence.encode() + b"\n")
        return exec_reply(failure.exit_code, log_path=log_path)
    finally:
        os.close(log)
    reap_when_dead(loop, pid)
    return exec_reply(0, pid=pid, log_path=log_path)


def rehearse(loop: Loop) -> None:
    """Run an empty command, of which nobody sees anything; without `true` there is none."""
    request = ExecRequest(["/bin/true"], "/", BASE_ENV, timeout_ms=0, cap_bytes=0, detached=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        reap_when_dead(loop, _start_program(request, nowhere))
    except CannotStart:
        pass
    finally:
        os.close(nowhere)


def _start_program(request: ExecRequest, log: int) -> int:
    process = start(request, log, log)
    process.returncode = 0  # it is reaped elsewhere; Popen must not try to
    return process.pid


def _is_own_program(argv: list[str], root: str) -> bool:
    return argv[:2] == _PYTHON and len(argv) > 2 and argv[2].startswith(root + _OWN_PROGRAMS)


def _start_in_fork(request: ExecRequest, log: int) -> int:
    child = os.fork()
    if child == 0:
        _live_as_program(request, log)
    return child


def _live_as_program(request: ExecRequest, log: int) -> None:
    status = 1
    try:
        os.setsid()
        expose_to_oom_killer(os.getpid())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        close_inherited()
        os.chdir(request.cwd)
        os.environ.clear()
        os.environ.update(request.env)
        sys.argv = request.argv[2:]
        program = SourceFileLoader("__main__", sys.argv[0]).get_code("__main__")
        assert program
        exec(program, {"__name__": "__main__", "__file__": sys.argv[0]})
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status(code: object) -> int:
    """The exit status of `sys.exit(code)`; other objects than numbers are said and mean 1."""
    if isinstance(code, int | None):
        return code or 0
    print(code, file=sys.stderr)
    return 1


@refuse_os_errors(LOG_DIR)
def _open_log(root: str) -> tuple[str, int]:
    """A new log file under LOG_DIR: its path as the guest sees it, and a descriptor open for
    appending."""
    directory = root + LOG_DIR
    os.makedirs(directory, exist_ok=True)
    number = 1 + max((_log_number(name) for name in os.listdir(directory)), default=0)
    while True:
        path = f"{LOG_DIR}/exec-{number}.log"
        try:
            return path, os.open(root + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND,
                                 0o640)
        except FileExistsError:
            number += 1


def _log_number(name: str) -> int:
    digits = name.removeprefix("exec-").removesuffix(".log")
    return int(digits) if digits.isdigit() else 0
