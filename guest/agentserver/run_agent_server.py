"""Runs the agent server as the guest's user, in a unit of its own, and tells its session once it is
ready.

Ready is: its `readinessPort` takes connections, if the bootstrap names one, else it has run for a
second.
"""
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .callback import send
from .start_agent_server import BOOTSTRAP_NAME, CONFIGURATION_NAME, RUN_DIR, USER

READY_LIMIT_S = 60.0
SETTLED_S = 1.0
POLL_S = 0.1
BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": f"/home/{USER}",
    "USER": USER,
    "LOGNAME": USER,
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
}


def main() -> int:
    """Start what the configuration says and return its exit code when it ends."""
    return serve(RUN_DIR, send)


def serve(directory: Path, tell: Callable[..., Any]) -> int:
    """Run the agent server to its end; `tell` posts a callback and is used once, if there is a
    bootstrap."""
    configuration = json.loads((directory / CONFIGURATION_NAME).read_text())
    file = directory / BOOTSTRAP_NAME
    bootstrap = json.loads(file.read_text()) if file.exists() else None
    ours = {
        "SVC_SANDBOX_ID": configuration["sandboxId"],
        **({} if bootstrap is None else {"SVC_AGENT_BOOTSTRAP": str(file)})
    }
    server = subprocess.Popen(["/bin/bash", "-c", configuration["source"]],
                              cwd=configuration["cwd"],
                              env={**BASE_ENV, **ours, **configuration["env"]},
                              stdin=subprocess.DEVNULL)
    if bootstrap is not None and _comes_up(server, bootstrap.get("readinessPort")):
        print("agent_server_ready:",
              tell("agent_server_ready", {}, str(file))[1], file=sys.stderr, flush=True)
    return server.wait()


def _comes_up(server: subprocess.Popen[bytes], port: int | None) -> bool:
    """False if the server ends before it is ready, or is not ready in time."""
    deadline = time.monotonic() + (SETTLED_S if port is None else READY_LIMIT_S)
    while server.poll() is None and time.monotonic() < deadline:
        if port is not None and _accepts(port):
            return True
        time.sleep(POLL_S)
    return port is None and server.poll() is None


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
