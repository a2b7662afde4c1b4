"""One request and its reply on one connection, within one deadline; the guest is not trusted with
sizes or frames."""
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from guest.agent.protocol import (
    BAD_REQUEST,
    DATA,
    FAILED,
    FAILURE,
    HEADER,
    MAX_PAYLOAD_BYTES,
    NO_SPACE,
    REQUEST,
    RESULT,
    TOO_LARGE,
    UNAUTHORIZED,
    ProtocolError,
    decode_header,
    decode_json,
    encode_frame,
    encode_json,
)
from guest.client.deadline import Deadline
from guest.client.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentUnauthorized,
    AgentUnreachable,
)
from guest.client.frame_budget import FrameBudget

RECEIVE_BYTES = 256 * 1024
IDLE_S = 1.0
# A guest that sends a few bytes at a time, again and again, is listened to a hundred times a
# second.
_FEW_BYTES, _PATIENCE, _PAUSE_S = 4096, 64, 0.01
# What agents of guest images before `no_space` call `failed`, by what the guest's system says of
# it: a sandbox keeps the image that it was made from.
_OF_OLDER_AGENTS = {
    os.strerror(errno.ENOSPC): NO_SPACE, os.strerror(errno.EDQUOT): NO_SPACE,
    os.strerror(errno.ENAMETOOLONG): BAD_REQUEST, os.strerror(errno.ELOOP): BAD_REQUEST,
}


class Conversation:
    """Owns the connection; use as a context manager.

    `wanted` is asked every IDLE_S while the guest is silent; AgentUnreachable as soon as it says
    False.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline,
                 wanted: Callable[[], bool] | None = None) -> None:
        self._socket = connection
        self._deadline = deadline
        self._wanted = wanted
        self._buffer = bytearray()
        self._budget = FrameBudget()
        self._owned = True
        self._small_pieces = 0

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self._socket.close()

    def detach(self) -> tuple[socket.socket, bytes]:
        """Give the connection away, with what was received beyond the last frame taken; it is the
        caller's to close."""
        self._owned = False
        return self._socket, bytes(self._buffer)

    def ask(self, request: dict[str, Any]) -> None:
        """Send the request frame."""
        try:
            frame = encode_json(REQUEST, request)
        except ProtocolError as error:
            raise AgentRefused(TOO_LARGE, "the request does not fit one frame") from error
        self._send(frame)

    def upload(self, chunks: Iterable[bytes]) -> None:
        """Send the chunks as DATA frames and the end of the stream; stops early if the agent
        answers before the end."""
        for chunk in chunks:
            for start in range(0, len(chunk), MAX_PAYLOAD_BYTES):
                if has_input(self._socket):
                    return
                self._send(encode_frame(DATA, chunk[start:start + MAX_PAYLOAD_BYTES]))
        self._send(encode_frame(DATA))
        self._deadline.content_is_over()

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
                raise failure(self._json(payload))
            yield kind, payload

    def _send(self, frame: bytes) -> None:
        remaining = memoryview(frame)
        while remaining:
            self._set_timeout()
            try:
                sent = self._socket.send(remaining)
                self._deadline.moved(sent)
                remaining = remaining[sent:]
            except TimeoutError:
                self._require_wanted()
            except OSError as error:
                # it may have refused, and closed, before it had read everything
                if has_input(self._socket):
                    return
                raise AgentUnreachable(
                    f"the connection to the guest agent broke: {error}") from error

    def _receive_frame(self) -> tuple[int, bytes]:
        try:
            kind, length = decode_header(self._exactly(HEADER.size))
        except ProtocolError as error:
            raise AgentProtocolError(str(error)) from error
        self._budget.count(kind, length)
        return kind, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            received = self._receive()
            self._slow_down(len(received))
            if not received:
                raise AgentUnreachable(
                    "the guest agent closed the connection before the end of its reply")
            self._buffer += received
        part = bytes(self._buffer[:size])
        del self._buffer[:size]
        return part

    def _receive(self) -> bytes:
        while True:
            self._set_timeout()
            try:
                received = self._socket.recv(RECEIVE_BYTES)
                self._deadline.moved(len(received))
                return received
            except TimeoutError:
                self._require_wanted()
            except OSError as error:
                raise AgentUnreachable(
                    f"the connection to the guest agent broke: {error}") from error

    def _slow_down(self, received_bytes: int) -> None:
        """Let more bytes gather before the next look at a guest that has sent them in many small
        pieces."""
        if received_bytes < _FEW_BYTES:
            self._small_pieces += 1
            if self._small_pieces > _PATIENCE:
                time.sleep(min(_PAUSE_S, self._deadline.left_s()))

    def _set_timeout(self) -> None:
        """Let the next step take what is left of the deadline, or IDLE_S if somebody is to be
        asked; raises AgentTimeout."""
        left_s = self._deadline.left_s()
        self._socket.settimeout(left_s if self._wanted is None else min(left_s, IDLE_S))

    def _require_wanted(self) -> None:
        if self._wanted is not None and not self._wanted():
            raise AgentUnreachable("nobody waits for the answer any more")

    def _json(self, payload: bytes) -> dict[str, Any]:
        try:
            return decode_json(payload)
        except ProtocolError as error:
            raise AgentProtocolError(str(error)) from error


def has_input(connection: socket.socket) -> bool:
    """Whether bytes of the guest's wait to be read, or the end of the connection."""
    # poll, because select fails for a process with more than 1023 open files
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(0))


def failure(reply: dict[str, Any]) -> AgentError:
    """What a FAILURE frame means to the caller."""
    code, message = str(reply.get("code", ""))[:40], str(reply.get("message", ""))[:2000]
    if code == FAILED:
        code = _OF_OLDER_AGENTS.get(message.rpartition(": ")[2], FAILED)
    return AgentUnauthorized(message) if code == UNAUTHORIZED else AgentRefused(code, message)
