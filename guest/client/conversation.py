"""One request and its reply on one connection, within one deadline; the guest is not trusted with
sizes or frames."""
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from guest.agent.protocol import (
    DATA,
    FAILURE,
    HEADER,
    MAX_PAYLOAD_BYTES,
    REQUEST,
    RESULT,
    ProtocolError,
    decode_header,
    decode_json,
    encode_frame,
    encode_json,
)
from guest.client.deadline import Deadline
from guest.client.errors import AgentProtocolError, AgentRefused, AgentTimeout, AgentUnreachable

RECEIVE_BYTES = 256 * 1024
IDLE_S = 1.0


class Conversation:
    """Owns the connection; use as a context manager."""

    def __init__(self, connection: socket.socket, deadline: Deadline,
                 on_idle: Callable[[], None] | None = None) -> None:
        self._socket = connection
        self._deadline = deadline
        self._on_idle = on_idle
        self._buffer = bytearray()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: dict[str, Any]) -> None:
        """Send the request frame."""
        try:
            frame = encode_json(REQUEST, request)
        except ProtocolError as error:
            raise AgentRefused("too_large", "the request does not fit one frame") from error
        self._send(frame)

    def upload(self, chunks: Iterable[bytes]) -> None:
        """Send the chunks as DATA frames and the end of the stream; stops early if the agent
        answers before the end."""
        for chunk in chunks:
            for start in range(0, len(chunk), MAX_PAYLOAD_BYTES):
                if self._answer_waits():
                    return
                self._send(encode_frame(DATA, chunk[start:start + MAX_PAYLOAD_BYTES]))
        self._send(encode_frame(DATA))

    def result(self) -> dict[str, Any]:
        """The RESULT of a reply that has no other frames."""
        for kind, _ in self.frames():
            raise AgentProtocolError(
                f"the guest agent sent a frame of type {kind} where only a result belongs")
        return self.outcome

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """The frames before the RESULT, which is then in `outcome`; raises AgentRefused for a
        FAILURE."""
        while True:
            kind, payload = self._receive_frame()
            if kind == RESULT:
                self.outcome = self._json(payload)
                return
            if kind == FAILURE:
                failure = self._json(payload)
                raise AgentRefused(
                    str(failure.get("code", ""))[:40],
                    str(failure.get("message", ""))[:2000])
            yield kind, payload

    def _send(self, frame: bytes) -> None:
        remaining = memoryview(frame)
        while remaining:
            left_s = self._deadline.left_s()
            try:
                self._socket.settimeout(left_s if self._on_idle is None else min(left_s, IDLE_S))
                remaining = remaining[self._socket.send(remaining):]
            except TimeoutError as error:
                if self._on_idle is None:
                    raise AgentTimeout(
                        "the guest agent did not take the request in time") from error
                self._on_idle()
            except OSError as error:
                # it may have refused, and closed, before it had read everything
                if self._answer_waits():
                    return
                raise AgentUnreachable(
                    f"the connection to the guest agent broke: {error}") from error

    def _answer_waits(self) -> bool:
        # poll, because select fails for a process with more than 1023 open files
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def _receive_frame(self) -> tuple[int, bytes]:
        try:
            kind, length = decode_header(self._exactly(HEADER.size))
        except ProtocolError as error:
            raise AgentProtocolError(str(error)) from error
        return kind, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            received = self._receive()
            if not received:
                raise AgentUnreachable(
                    "the guest agent closed the connection before the end of its reply")
            self._buffer += received
        part = bytes(self._buffer[:size])
        del self._buffer[:size]
        return part

    def _receive(self) -> bytes:
        """What comes next; `on_idle` is called every IDLE_S while nothing does, and may raise to
        end the wait."""
        while True:
            left_s = self._deadline.left_s()
            try:
                self._socket.settimeout(left_s if self._on_idle is None else min(left_s, IDLE_S))
                return self._socket.recv(RECEIVE_BYTES)
            except TimeoutError as error:
                if self._on_idle is None:
                    raise AgentTimeout("the guest agent did not answer in time") from error
            except OSError as error:
                raise AgentUnreachable(
                    f"the connection to the guest agent broke: {error}") from error
            self._on_idle()

    def _json(self, payload: bytes) -> dict[str, Any]:
        try:
            return decode_json(payload)
        except ProtocolError as error:
            raise AgentProtocolError(str(error)) from error
