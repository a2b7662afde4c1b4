"""Talks to the simulator process of a node, and starts it when there is none."""
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nodeworker
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.sockets import short_path

_SOCKET_NAME = "control.sock"
_START_LIMIT_S = 20.0
_ANSWER_LIMIT_S = 20.0
# The simulator needs nothing of the worker's configuration, and must not keep its secrets in its
# environment.
_ENVIRONMENT = {"PATH": os.defpath, "PYTHONPATH": str(Path(nodeworker.__file__).parents[1])}


class SimulatorControl:
    """The simulator of one directory; several processes may talk to it at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ask(self, what: str, **arguments: Any) -> Any:
        """The result of one command; starts the simulator first if need be. Raises DriverError."""
        answer = self._exchange(what, arguments)
        deadline = time.monotonic() + _START_LIMIT_S
        while answer is None:
            if time.monotonic() > deadline:
                raise DriverError("the simulator does not start")
            self._launch()
            time.sleep(0.2)
            answer = self._exchange(what, arguments)
        return _result(answer)

    def running(self) -> set[str]:
        """Ids of the running guests; none if no simulator runs."""
        answer = self._exchange("list", {})
        return set(_result(answer)["running"]) if answer else set()

    def usage(self, sandbox_id: str) -> dict[str, Any] | None:
        """What a running guest has used; None if it does not run."""
        answer = self._exchange("usage", {"sandbox_id": sandbox_id})
        return dict(_result(answer)) or None if answer else None

    def pid(self) -> int:
        """The simulator's process id; starts it if need be."""
        return int(self.ask("list")["pid"])

    def _launch(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # Forked away, so that it is nobody's child and ends without leaving a zombie.
        command = [sys.executable, "-m", "nodeworker.hypervisor.simulated", str(self._directory)]
        subprocess.run(["setsid", "--fork", *command], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
                       timeout=_START_LIMIT_S, env=_ENVIRONMENT)

    def _exchange(self, what: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The simulator's answer; None if there is none to ask (it may end between two
        questions)."""
        try:
            with socket.socket(socket.AF_UNIX) as connection, short_path(
                    self._directory / _SOCKET_NAME) as address:
                connection.settimeout(_ANSWER_LIMIT_S)
                connection.connect(address)
                connection.sendall(json.dumps({"do": what, "with": arguments}).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    line = lines.readline()
        except OSError:
            return None
        return dict(json.loads(line)) if line else None


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise DriverError(f"simulator: {answer['error']}")
    return answer["result"]
