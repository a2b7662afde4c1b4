"""Run the commands a simulated guest knows; none of them touches anything outside its memory."""
import json
import posixpath
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guest.agent.protocol import DEFAULT_TIMEOUT_MS, NOT_FOUND_EXIT_CODE, TIMED_OUT_EXIT_CODE
from nodeworker.hypervisor.simulated import deploys, presets
from nodeworker.hypervisor.simulated.guest import AGENT_SERVER_DIR, HOME, Guest, directory

START_LOG = "/var/log/svc/start.log"
_MAX_SLEEP_S = 3600.0


@dataclass
class Outcome:
    """What a command left: output and exit code."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    timed_out: bool = False


def execute(guest: Guest, request: dict[str, Any]) -> Outcome:
    """The agent's `exec` for the commands in `_COMMANDS`; a shell line is split into words and
    nothing more."""
    argv = request.get("argv") or shlex.split(request.get("shell", ""))
    command = _COMMANDS.get(posixpath.basename(argv[0])) if argv else None
    if command is None:
        return Outcome(stderr=f"{' '.join(argv)}: not found\n".encode(),
                       exit_code=NOT_FOUND_EXIT_CODE)
    return command(guest, argv[1:], request)


def _echo(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    return Outcome(" ".join(arguments).encode() + b"\n")


def _cat(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    cwd = request.get("cwd") or HOME
    paths = [posixpath.normpath(posixpath.join(cwd, argument)) for argument in arguments]
    missing = [path for path in paths if path not in guest.files]
    output = b"".join(guest.files.get(path, b"") for path in paths)
    errors = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return Outcome(output, errors.encode(), 1 if missing else 0)


def _env(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    variables = {"HOME": "/root", **guest.env, **(request.get("env") or {})}
    return Outcome("".join(f"{name}={value}\n" for name, value in variables.items()).encode())


def _sleep(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    try:
        wanted_s = min(float(arguments[0]), _MAX_SLEEP_S)
    except (IndexError, ValueError):
        return Outcome(stderr=b"sleep: expects a number of seconds\n", exit_code=1)
    limit_s = request.get("timeoutMs", DEFAULT_TIMEOUT_MS) / 1000
    time.sleep(min(wanted_s, limit_s))
    return Outcome(exit_code=TIMED_OUT_EXIT_CODE,
                   timed_out=True) if wanted_s > limit_s else Outcome()


def _find(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`find <directory> ... -delete` only: everything below the directory goes."""
    if len(arguments) < 2 or arguments[-1] != "-delete":
        return Outcome(stderr=b"find: simulated for -delete only\n", exit_code=1)
    root = directory({"directory": arguments[0]})
    guest.files = {
        path: content for path, content in guest.files.items() if not path.startswith(root)
    }
    return Outcome()


def _burn(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """Have so many seconds of CPU time charged to the guest, at once."""
    try:
        guest.cpu_ms += max(0, int(float(arguments[0]) * 1000))
    except (IndexError, ValueError, OverflowError):
        return Outcome(stderr=b"burn: expects a number of seconds\n", exit_code=1)
    return Outcome()


def _serve(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`serve PORT [SECONDS [SERVER]]`: listen on the port, that many seconds from now; a server on
    the host's port SERVER answers there."""
    time.sleep(float(arguments[1]) if len(arguments) > 1 else 0)
    guest.serve(int(arguments[0]), int(arguments[2]) if len(arguments) > 2 else None)
    return Outcome(f"serving {arguments[0]}\n".encode())


def _bash(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`bash -c SCRIPT LOCK NUMBER LINE`, the way a node starts a service: run the line, append what
    it says to the log, once for each number."""
    mark = f"{arguments[2]}.{arguments[3]}"
    if mark in guest.files:
        return Outcome()
    guest.files[mark] = b""
    outcome = execute(guest, {**request, "argv": shlex.split(arguments[-1])})
    guest.files[START_LOG] = guest.files.get(START_LOG, b"") + outcome.stdout + outcome.stderr
    return Outcome(exit_code=outcome.exit_code)


def _python3(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`python3 -c PROGRAM MARK PORT SIGNAL`, the way a node ends a listener: at once; `python3 -IS
    activate.py SLUG LIMIT`; or `python3 -c PROGRAM CANDIDATES DATABASE`, a deploy's look at a
    project."""
    if len(arguments) == 4 and arguments[0] == "-c":
        return Outcome(deploys.look(guest, arguments[2], request))
    if arguments[0] != "-c":
        return Outcome(exit_code=presets.activate(guest, arguments[2]))
    mark, port = arguments[2], int(arguments[3])
    if mark in guest.files or port not in guest.listening:
        return Outcome()
    guest.end_listener(port)
    return Outcome(exit_code=75)


def _flock(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`flock [--shared] --wait SECONDS FILE COMMAND...`; nothing holds a lock together here."""
    wait_s, path, *command = arguments[arguments.index("--wait") + 1:]
    lock = guest.locks.setdefault(path, threading.Lock())
    if not lock.acquire(timeout=float(wait_s)):
        return Outcome(exit_code=1)
    try:
        return execute(guest, {**request, "argv": command})
    finally:
        lock.release()


def _sh(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`sh -c SCRIPT`, for the scripts of deploys only."""
    def run(line: str) -> tuple[bytes, int]:
        ended = execute(guest, {**request, "argv": shlex.split(line)})
        return ended.stdout + ended.stderr, ended.exit_code

    done = deploys.script(guest, arguments[1], request.get("cwd") or HOME, run)
    return Outcome(stderr=b"sh: not simulated\n", exit_code=NOT_FOUND_EXIT_CODE
                   ) if done is None else Outcome(done[0], exit_code=done[1])


def _tail(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`tail -c BYTES FILE`."""
    return Outcome(guest.files.get(arguments[-1], b"")[-int(arguments[1]):])


def _agent_server(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """The image's `svc-agent-server`, as far as its files go: nothing really runs here."""
    if arguments == ["start"]:
        launch = json.loads(guest.files[f"{AGENT_SERVER_DIR}/launch.json"])
        bootstrap = launch.pop("bootstrap", None)
        guest.files[f"{AGENT_SERVER_DIR}/launch.json"] = json.dumps(launch).encode()
        if bootstrap is not None:
            content = {**bootstrap, "sandboxId": launch["sandboxId"]}
            guest.files[f"{AGENT_SERVER_DIR}/bootstrap.json"] = json.dumps(content).encode()
        guest.files[f"{AGENT_SERVER_DIR}/started"] = b""
    else:
        for path in [path for path in guest.files if path.startswith(AGENT_SERVER_DIR)]:
            del guest.files[path]
    return Outcome()


_COMMANDS: dict[str, Callable[[Guest, list[str], dict[str, Any]], Outcome]] = {
    "echo": _echo,
    "cat": _cat,
    "env": _env,
    "sleep": _sleep,
    "find": _find,
    "burn": _burn,
    "serve": _serve,
    "ss": lambda guest, arguments, request: Outcome(
        "".join(f"{port}\n" for port in sorted(guest.listening)).encode()
    ),
    "bash": _bash,
    "python3": _python3,
    "flock": _flock,
    "sh": _sh,
    "tail": _tail,
    "start": lambda guest, arguments, request: Outcome(exit_code=presets.start_web_ui(guest)),
    "true": lambda guest, arguments, request: Outcome(),
    "test": lambda guest, arguments, request: Outcome(),
    "svc-agent-server": _agent_server,
    "false": lambda guest, arguments, request: Outcome(exit_code=1),
    "pwd": lambda guest, arguments, request: Outcome(f"{request.get('cwd') or HOME}\n".encode()),
}
