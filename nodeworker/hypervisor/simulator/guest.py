"""One simulated guest: files and environment in memory, and a fixed set of commands that touch
nothing outside it."""
import base64
import io
import json
import posixpath
import shlex
import tarfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from guest.agent.protocol import (
    BAD_REQUEST,
    DEFAULT_TIMEOUT_MS,
    FAILED,
    NOT_FOUND,
    NOT_FOUND_EXIT_CODE,
    TIMED_OUT_EXIT_CODE,
    UNAUTHORIZED,
    Refused,
)

HOME = "/home/user"
START_LOG = "/var/log/svc/start.log"
_AGENT_SERVER_DIR = "/run/svc-agent"
_MAX_SLEEP_S = 3600.0
_PORT_POLL_S = 0.02
_END_MARK_BYTES = 1024


@dataclass
class Outcome:
    """What a command left: output and exit code."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    timed_out: bool = False


@dataclass
class Guest:
    """State of one guest. `files` maps absolute paths to contents; `token` is what its agent
    demands.

    The file system of `disk_bytes` lies on a block device of `device_bytes`. `run`, `started_at`
    and `cpu_ms` are of this process only and not kept when it sleeps.
    """

    token: str
    sandbox_id: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    listening: set[int] = field(default_factory=set)
    device_bytes: int = 16 * 1024 ** 3
    disk_bytes: int = 16 * 1024 ** 3
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: float = field(default_factory=time.monotonic)
    cpu_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: what a saved state or a snapshot keeps."""
        files = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        return {
            "token": self.token,
            "sandbox_id": self.sandbox_id,
            "env": self.env,
            "files": files,
            "listening": sorted(self.listening),
            "device_bytes": self.device_bytes,
            "disk_bytes": self.disk_bytes,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Guest":
        """The guest `to_json` described."""
        files = {path: base64.b64decode(content) for path, content in record["files"].items()}
        return cls(**{**record, "files": files, "listening": set(record["listening"])})

    def check(self, token: object) -> None:
        """Raises Refused unless `token` is the guest's."""
        if token != self.token:
            raise Refused(UNAUTHORIZED, "the token is not valid")

    def ping(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's `ping`."""
        return {
            "agentVersion": "simulated", "bootId": f"simulated-{id(self)}",
            "adopted": self.sandbox_id
        }

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's `adopt`: take token, environment and, for a clone, machine-id and host
        name."""
        if request.get("renew"):
            self.files["/etc/machine-id"] = f"{request['machineId']}\n".encode()
            self.files["/etc/hostname"] = f"{request['hostname']}\n".encode()
            for name in ("bootstrap.json", "started"):
                self.files.pop(f"{_AGENT_SERVER_DIR}/{name}", None)
        self.token, self.sandbox_id, self.env = (
            request["newToken"], request["sandboxId"], request.get("env") or {},
        )
        return {"adopted": self.sandbox_id, "clockNs": time.time_ns()}

    def disk(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's `disk`."""
        used = sum(map(len, self.files.values()))
        return {
            "totalBytes": self.disk_bytes, "usedBytes": used,
            "availableBytes": self.disk_bytes - used
        }

    def grow_disk(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's `grow_disk`."""
        if self.device_bytes < request["deviceBytes"]:
            raise Refused(FAILED, "the root device has not grown")
        self.disk_bytes = self.device_bytes
        return self.disk(request)

    def wait_port(self, request: dict[str, Any]) -> dict[str, Any]:
        """The agent's `wait_port`; only `serve` makes a port listen."""
        deadline = time.monotonic() + request["timeoutMs"] / 1000
        while request["port"] not in self.listening and time.monotonic() < deadline:
            time.sleep(_PORT_POLL_S)
        return {"open": request["port"] in self.listening}

    def write(self, request: dict[str, Any], content: bytes) -> dict[str, Any]:
        """The agent's `write`; a size that differs from the announced one leaves the old file."""
        if request.get("sizeBytes", len(content)) != len(content):
            raise Refused(BAD_REQUEST, "the content is not of the announced size")
        self.files[posixpath.normpath(request["path"])] = content
        return {"sizeBytes": len(content)}

    def read(self, request: dict[str, Any]) -> bytes:
        """The agent's `read`."""
        try:
            return self.files[posixpath.normpath(request["path"])]
        except KeyError:
            raise Refused(NOT_FOUND, f"there is no file {request['path']}") from None

    def archive(self, request: dict[str, Any]) -> bytes:
        """The agent's `archive`; a simulated guest has a directory as soon as it has a file in
        it."""
        root = _directory(request)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, content in sorted(self.files.items()):
                if path.startswith(root):
                    entry = tarfile.TarInfo(f"./{path.removeprefix(root)}")
                    entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o644, 1000, 1000
                    archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    def unarchive(self, request: dict[str, Any], content: bytes) -> dict[str, Any]:
        """The agent's `unarchive`, for regular files; other entries have no counterpart here."""
        root = _directory(request)
        if content[-_END_MARK_BYTES:] != bytes(_END_MARK_BYTES):
            raise Refused(BAD_REQUEST, "the archive is cut short: its end mark is missing")
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for entry in archive:
                    if entry.isfile() and (file := archive.extractfile(entry)):
                        self.files[_inside(root, entry.name)] = file.read()
        except tarfile.TarError as error:
            raise Refused(FAILED, f"tar could not extract the archive: {error}") from error
        return {"sizeBytes": len(content)}

    def execute(self, request: dict[str, Any]) -> Outcome:
        """The agent's `exec` for the commands in `_COMMANDS`; a shell line is split into words and
        nothing more."""
        argv = request.get("argv") or shlex.split(request.get("shell", ""))
        command = _COMMANDS.get(posixpath.basename(argv[0])) if argv else None
        if command is None:
            return Outcome(stderr=f"{' '.join(argv)}: not found\n".encode(),
                           exit_code=NOT_FOUND_EXIT_CODE)
        return command(self, argv[1:], request)


def _directory(request: dict[str, Any]) -> str:
    """The directory of a request, absolute, with a slash at its end."""
    return posixpath.normpath(posixpath.join(HOME, request["directory"])).rstrip("/") + "/"


def _inside(root: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(root, name.lstrip("/")))
    if not path.startswith(root):
        raise Refused(FAILED,
                      f"tar could not extract the archive: {name}: Member name contains '..'")
    return path


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
    root = _directory({"directory": arguments[0]})
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
    """`serve PORT [SECONDS]`: listen on the port, that many seconds from now."""
    time.sleep(float(arguments[1]) if len(arguments) > 1 else 0)
    guest.listening.add(int(arguments[0]))
    return Outcome(f"serving {arguments[0]}\n".encode())


def _bash(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`bash -c SCRIPT LOCK LINE`, the way a node starts a service: run the line, append what it
    says to the log."""
    outcome = guest.execute({**request, "argv": shlex.split(arguments[-1])})
    guest.files[START_LOG] = guest.files.get(START_LOG, b"") + outcome.stdout + outcome.stderr
    return Outcome(exit_code=outcome.exit_code)


def _tail(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """`tail -c BYTES FILE`."""
    return Outcome(guest.files.get(arguments[-1], b"")[-int(arguments[1]):])


def _agent_server(guest: Guest, arguments: list[str], request: dict[str, Any]) -> Outcome:
    """The image's `svc-agent-server`, as far as its files go: nothing really runs here."""
    if arguments == ["start"]:
        launch = json.loads(guest.files[f"{_AGENT_SERVER_DIR}/launch.json"])
        bootstrap = launch.pop("bootstrap", None)
        guest.files[f"{_AGENT_SERVER_DIR}/launch.json"] = json.dumps(launch).encode()
        if bootstrap is not None:
            content = {**bootstrap, "sandboxId": launch["sandboxId"]}
            guest.files[f"{_AGENT_SERVER_DIR}/bootstrap.json"] = json.dumps(content).encode()
        guest.files[f"{_AGENT_SERVER_DIR}/started"] = b""
    else:
        for path in [path for path in guest.files if path.startswith(_AGENT_SERVER_DIR)]:
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
    "tail": _tail,
    "true": lambda guest, arguments, request: Outcome(),
    "svc-agent-server": _agent_server,
    "false": lambda guest, arguments, request: Outcome(exit_code=1),
    "pwd": lambda guest, arguments, request: Outcome(f"{request.get('cwd') or HOME}\n".encode()),
}
