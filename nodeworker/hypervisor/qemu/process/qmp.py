"""A small QMP client: one command at a time, every wait bounded, descriptors passed along, events
collected; what a hostile monitor sends beyond measure is an error."""
import json
import math
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from nodeworker.hypervisor.sockets import short_path

DEADLINE_S = 30.0
# The time (s) that one machine may take of a look at all of them. What does not answer in it is
# looked at again soon; the others do not wait for it.
LOOK_S = 2.0
_READ_BYTES = 65536
# A monitor may be what a hostile guest made of QEMU. The longest honest line is the console, 64 KiB
# escaped; an honest connection of a few commands comes to less than that.
_LINE_MOST_BYTES = 512 * 1024
_SHOWN = 500
_TOTAL_MOST_BYTES = 4 * 1024 * 1024


class QmpError(Exception):
    """QEMU refused a command, or its monitor went away or stayed silent."""


class QmpRefused(QmpError):
    """QEMU answered that it cannot do what the command says."""


_Client = TypeVar("_Client", bound="QmpClient")


class QmpClient:
    """The monitor of one QEMU; a context manager. `deadline_s` bounds every single command,
    `within_s` all of them together, counted from now."""

    def __init__(self, path: Path, deadline_s: float = DEADLINE_S,
                 within_s: float = math.inf) -> None:
        self.deadline_s = deadline_s
        self._ends_at = time.monotonic() + within_s
        self._buffer = b""
        self._received_bytes = 0
        self._asked = 0
        self.events: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(min(deadline_s, within_s))
            with short_path(path) as address:
                self._socket.connect(address)
            self._receive(self._next_deadline())
            self.run("qmp_capabilities")
        except OSError as error:
            self._socket.close()
            raise QmpError(f"no monitor: {error}") from error
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self: _Client) -> _Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; QEMU goes on and accepts the next connection."""
        self._socket.close()

    def run(self, command: str, arguments: dict[str, Any] | None = None,
            descriptor: int | None = None) -> Any:
        """Run one command and return its result; `descriptor` is passed along. Raises QmpRefused,
        QmpError."""
        self._asked += 1
        request: dict[str, Any] = {"execute": command, "id": self._asked}
        if arguments:
            request["arguments"] = arguments
        deadline = self._next_deadline()
        try:
            message = json.dumps(request).encode()
            if descriptor is None:
                self._socket.sendall(message)
            else:
                socket.send_fds(self._socket, [message], [descriptor])
        except OSError as error:
            raise QmpError(f"{command}: {error}") from error
        while True:
            reply = self._receive(deadline)
            if "event" in reply:
                self.events.append(reply)
            elif reply.get("id", self._asked) != self._asked:
                continue  # the answer to one before, for which nobody waited any longer
            elif "error" in reply:
                raise QmpRefused(f"{command}: {_described(reply['error'])}")
            elif "return" in reply:
                return reply["return"]
            else:
                raise QmpError(f"{command}: the monitor sent neither an answer nor an event")

    def wait_event(self, wanted: Callable[[dict[str, Any]], bool],
                   deadline_s: float) -> dict[str, Any]:
        """The first event, already seen or still to come, that `wanted` accepts. Raises QmpError at
        the deadline."""
        deadline = time.monotonic() + deadline_s
        for event in self.events:
            if wanted(event):
                return event
        while True:
            message = self._receive(deadline)
            if "event" in message:
                self.events.append(message)
                if wanted(message):
                    return message

    def _next_deadline(self) -> float:
        return min(time.monotonic() + self.deadline_s, self._ends_at)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while True:
            # before each message, also of those that are here already: there may be thousands
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise QmpError("the monitor did not answer in time")
            if b"\n" in self._buffer:
                break
            self._socket.settimeout(remaining)
            try:
                chunk = self._socket.recv(_READ_BYTES)
            except OSError as error:
                raise QmpError(f"the monitor did not answer: {error}") from error
            if not chunk:
                raise QmpError("QEMU ended")
            self._buffer += chunk
            self._received_bytes += len(chunk)
            if len(self._buffer) > _LINE_MOST_BYTES or self._received_bytes > _TOTAL_MOST_BYTES:
                raise QmpError("the monitor sends more than any honest one")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _parsed(line)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise QmpError(f"the monitor sent no JSON: {type(error).__name__}") from error
    if not isinstance(message, dict):
        raise QmpError("the monitor sent something else than an object")
    return message


def _described(error: Any) -> str:
    words = error.get("desc") if isinstance(error, dict) else None
    return words[:_SHOWN] if isinstance(words, str) else "refused without a word"


def listen(path: Path) -> socket.socket:
    """A listening socket at `path` to hand to QEMU, so that connecting works before QEMU is up;
    replaces a stale one."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as address:
        server.bind(address)
    server.listen(4)
    return server
