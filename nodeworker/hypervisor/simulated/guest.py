"""Keep one simulated guest in memory: its files, its environment and its agent's operations but
`exec`."""
import base64
import io
import posixpath
import tarfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from guest.agent.protocol import BAD_REQUEST, FAILED, NOT_FOUND, UNAUTHORIZED, Refused

HOME = "/home/user"
AGENT_SERVER_DIR = "/run/svc-agent"
_PORT_POLL_S = 0.02
_END_MARK_BYTES = 1024


@dataclass
class Guest:
    """State of one guest. `files` maps absolute paths to contents; `token` is what its agent
    demands.

    `servers` maps ports of the guest to the ports of this host whose servers answer there. The file
    system of `disk_bytes` lies on a block device of `device_bytes`. `run`, `started_at`,
    `cpu_ms`, the `locks` of files and `on_change`, which is called when it begins or ends to serve,
    are of this process only and not kept when it sleeps.
    """

    token: str
    sandbox_id: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    listening: set[int] = field(default_factory=set)
    servers: dict[int, int] = field(default_factory=dict)
    device_bytes: int = 16 * 1024 ** 3
    disk_bytes: int = 16 * 1024 ** 3
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: float = field(default_factory=time.monotonic)
    cpu_ms: int = 0
    locks: dict[str, threading.Lock] = field(default_factory=dict)
    on_change: Callable[[], None] = lambda: None

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: what a saved state or a snapshot keeps."""
        files = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        return {
            "token": self.token,
            "sandbox_id": self.sandbox_id,
            "env": self.env,
            "files": files,
            "listening": sorted(self.listening),
            "servers": sorted(self.servers.items()),
            "device_bytes": self.device_bytes,
            "disk_bytes": self.disk_bytes,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Guest":
        """The guest `to_json` described."""
        files = {path: base64.b64decode(content) for path, content in record["files"].items()}
        return cls(**{**record, "files": files, "listening": set(record["listening"]),
                      "servers": dict(record.get("servers", ()))})

    def serve(self, port: int, server_port: int | None = None) -> None:
        """Listen on a port; what comes there is answered by a server of this host, if given."""
        self.listening.add(port)
        if server_port is not None:
            self.servers[port] = server_port
        self.on_change()

    def end_listener(self, port: int) -> None:
        """Listen on a port no longer."""
        self.listening.discard(port)
        self.servers.pop(port, None)
        self.on_change()

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
                self.files.pop(f"{AGENT_SERVER_DIR}/{name}", None)
        self.token, self.sandbox_id, self.env = (
            request["newToken"], request["sandboxId"], request.get("env") or {},
        )
        return {"adopted": self.sandbox_id}

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
        root = directory(request)
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
        root = directory(request)
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


def directory(request: dict[str, Any]) -> str:
    """The directory of a request, absolute, with a slash at its end."""
    return posixpath.normpath(posixpath.join(HOME, request["directory"])).rstrip("/") + "/"


def _inside(root: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(root, name.lstrip("/")))
    if not path.startswith(root):
        raise Refused(FAILED,
                      f"tar could not extract the archive: {name}: Member name contains '..'")
    return path
