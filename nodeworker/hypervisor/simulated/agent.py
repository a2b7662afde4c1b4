"""Serves one simulated guest on its agent port of the node's address, in the agent's wire
protocol."""
import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

from guest.agent import protocol
from guest.agent.protocol import (
    BAD_REQUEST,
    DATA,
    FAILURE,
    REQUEST,
    RESULT,
    STDERR,
    STDOUT,
    FrameReader,
    Refused,
)
from nodeworker.hypervisor.simulated.commands import execute
from nodeworker.hypervisor.simulated.guest import Guest
from nodeworker.hypervisor.simulated.shell import serve_shell

_PEER_LIMIT_S = 30.0


class AgentServer(socketserver.ThreadingTCPServer):
    """The agent of one guest; a thread per connection."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: str, port: int, guest: Guest) -> None:
        self.guest = guest
        super().__init__((address, port), _Connection)


class _Connection(socketserver.BaseRequestHandler):
    server: AgentServer

    def handle(self) -> None:
        """One request, one answer; a peer that goes away or talks nonsense is left alone."""
        self.request.settimeout(_PEER_LIMIT_S)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, protocol.ProtocolError):
            frames = self._frames()
            try:
                kind, payload = next(frames)
                if kind != REQUEST:
                    raise protocol.ProtocolError("the first frame is not a request")
                request = protocol.decode_json(payload)
                self.server.guest.check(request.get("token"))
                self._answer(request, frames)
            except Refused as refusal:
                self._send(FAILURE, {"code": refusal.code, "message": refusal.message})
            except (KeyError, TypeError, ValueError) as error:
                self._send(FAILURE, {"code": BAD_REQUEST, "message": str(error)})

    def _answer(self, request: dict[str, Any], frames: Iterator[tuple[int, bytes]]) -> None:
        guest, operation = self.server.guest, request.get("op")
        results: dict[object, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ping": guest.ping, "adopt": guest.adopt, "disk": guest.disk,
            "grow_disk": guest.grow_disk, "wait_port": guest.wait_port, "sync": lambda _: {},
            "prepare": lambda _: {"freeBytes": 0}, "exec": self._exec,
            "read": lambda asked: self._give(guest.read(asked)),
            "archive": lambda asked: self._give(guest.archive(asked)),
            "write": lambda asked: guest.write(asked, _content(frames)),
            "unarchive": lambda asked: guest.unarchive(asked, _content(frames)),
        }
        if operation == "shell":
            self.request.settimeout(None)
            serve_shell(guest, request, frames, self.request.sendall)
        elif operation in results:
            self._send(RESULT, results[operation](request))
        else:
            raise Refused(BAD_REQUEST, f"there is no operation {operation!r}")

    def _give(self, content: bytes) -> dict[str, Any]:
        self._stream(DATA, content)
        return {"sizeBytes": len(content)}

    def _exec(self, request: dict[str, Any]) -> dict[str, Any]:
        result = {"timedOut": False, "stdoutTruncated": False, "stderrTruncated": False, "pid": 2}
        if request.get("detached"):
            threading.Thread(target=execute, args=(self.server.guest, request), daemon=True).start()
            return {**result, "exitCode": 0, "logPath": "/var/log/svc/exec-2.log"}
        outcome = execute(self.server.guest, request)
        self._stream(STDOUT, outcome.stdout)
        self._stream(STDERR, outcome.stderr)
        return {**result, "exitCode": outcome.exit_code, "timedOut": outcome.timed_out}

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        reader = FrameReader()
        while True:
            received = self.request.recv(protocol.CHUNK_BYTES)
            if not received:
                raise protocol.ProtocolError("the peer hung up")
            reader.feed(received)
            yield from reader.frames()

    def _stream(self, kind: int, content: bytes) -> None:
        for start in range(0, len(content), protocol.CHUNK_BYTES):
            self.request.sendall(
                protocol.encode_frame(kind, content[start:start + protocol.CHUNK_BYTES]))

    def _send(self, kind: int, value: dict[str, Any]) -> None:
        self.request.sendall(protocol.encode_json(kind, value))


def _content(frames: Iterator[tuple[int, bytes]]) -> bytes:
    """The data frames up to the empty one."""
    parts = []
    for kind, payload in frames:
        if kind != DATA:
            raise protocol.ProtocolError("a frame that is not data in a stream of data")
        if not payload:
            break
        parts.append(payload)
    return b"".join(parts)
