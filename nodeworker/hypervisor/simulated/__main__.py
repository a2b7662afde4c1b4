"""The simulator process of one node: holds the running guests, so that they outlive the workers, as
real VMs do.

`python -m nodeworker.hypervisor.simulated <directory>`; one per directory (a lock sees to it),
driven through a Unix socket with one JSON line per connection. It ends when it has had no guest for
a while or its directory is gone.
"""
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeworker.hypervisor.locks import try_lock
from nodeworker.hypervisor.simulated.agent import AgentServer
from nodeworker.hypervisor.simulated.guest import Guest
from nodeworker.hypervisor.simulated.port_forwards import ForwardedPorts

SOCKET_NAME = "control.sock"
LOCK_NAME = "simulator.lock"
_IDLE_LIMIT_S = 5.0


class Simulator:
    """The running guests by sandbox id, each with its agent server."""

    def __init__(self) -> None:
        self._running: dict[str, AgentServer] = {}
        self._ports: dict[str, ForwardedPorts] = {}

    def start(self, sandbox_id: str, address: str, port: int, guest: dict[str, Any],
              forwards: list[tuple[int, int]]) -> dict[str, Any]:
        """Start a guest, which is reached at `address`; one of this id that runs already stays as
        it is."""
        if sandbox_id not in self._running:
            server = AgentServer(address, port, Guest.from_json(guest))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05},
                             daemon=True).start()
            self._running[sandbox_id] = server
            self._ports[sandbox_id] = ForwardedPorts(server.guest, address)
        return self.forward(sandbox_id, forwards)

    def forward(self, sandbox_id: str, forwards: list[tuple[int, int]]) -> dict[str, Any]:
        """Make `forwards` (host port, guest port) what leads to a running guest."""
        self._ports[sandbox_id].replace(dict(forwards))
        return {}

    def state(self, sandbox_id: str) -> dict[str, Any]:
        """Everything a running guest holds."""
        return {"guest": self._running[sandbox_id].guest.to_json()}

    def usage(self, sandbox_id: str) -> dict[str, Any]:
        """What a running guest has used; nothing if it does not run."""
        server = self._running.get(sandbox_id)
        if server is None:
            return {}
        guest = server.guest
        age_ms = int((time.monotonic() - guest.started_at) * 1000)
        return {"run": guest.run, "cpu_ms": guest.cpu_ms, "age_ms": age_ms}

    def adopt(self, sandbox_id: str, request: dict[str, Any]) -> dict[str, Any]:
        """Hand a guest over, as the agent's `adopt` does."""
        return self._running[sandbox_id].guest.adopt(request)

    def resize(self, sandbox_id: str, device_bytes: int) -> dict[str, Any]:
        """Enlarge the block device of a running guest; it is never made smaller."""
        guest = self._running[sandbox_id].guest
        guest.device_bytes = max(guest.device_bytes, device_bytes)
        return {}

    def stop(self, sandbox_id: str) -> dict[str, Any]:
        """End a guest; none of this id: no-op."""
        server = self._running.pop(sandbox_id, None)
        if server is not None:
            self._ports.pop(sandbox_id).close()
            server.shutdown()
            server.server_close()
        return {}

    def list(self) -> dict[str, Any]:
        """Ids of the running guests, and the process that holds them."""
        return {"running": sorted(self._running), "pid": os.getpid()}

    def answer(self, line: bytes) -> dict[str, Any]:
        """Carry out one request line."""
        request = json.loads(line)
        command: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self.start, "state": self.state, "adopt": self.adopt, "resize": self.resize,
            "forward": self.forward, "stop": self.stop, "list": self.list, "usage": self.usage
        }
        try:
            return {"result": command[request["do"]](**request["with"])}
        except (KeyError, TypeError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}


def serve(directory: Path) -> None:
    """Serve until idle; returns at once if another process serves this directory."""
    lock = try_lock(directory / LOCK_NAME)
    if lock is None:
        return
    os.chdir(directory)
    Path(SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET_NAME)
    listener.listen(64)
    listener.settimeout(0.5)
    simulator, busy_at = Simulator(), time.monotonic()
    while time.monotonic() - busy_at < _IDLE_LIMIT_S and _is_ours(directory / LOCK_NAME, lock):
        if simulator.list()["running"]:
            busy_at = time.monotonic()
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            continue
        with peer:
            peer.settimeout(5.0)
            try:
                with peer.makefile("rb") as lines:
                    peer.sendall(json.dumps(simulator.answer(lines.readline())).encode() + b"\n")
                busy_at = time.monotonic()
            except (OSError, ValueError):
                continue


def _is_ours(path: Path, lock: int) -> bool:
    """False once the directory was removed, even if there is a new one of its name."""
    return path.exists() and os.stat(path).st_ino == os.fstat(lock).st_ino


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
