"""The connection as a forked child sees it: plain blocking frames in both directions, every wait
bounded."""
import select
import socket
import time
from collections.abc import Callable

from .protocol import (
    CHUNK_BYTES,
    DATA,
    FAILURE,
    HEADER,
    ProtocolError,
    decode_header,
    encode_frame,
    encode_json,
)

IO_TIMEOUT_S = 60.0
DISCARD_S = 10.0


class PeerGone(Exception):
    """The peer closed, stalled or broke the protocol; there is nobody to tell."""


class Channel:
    """Owns the connection in the child."""

    def __init__(self, peer: socket.socket, received: bytes) -> None:
        peer.settimeout(IO_TIMEOUT_S)
        self._socket = peer
        self._received = received

    def receive(self) -> tuple[int, bytes]:
        """The next frame; raises PeerGone if there is none."""
        try:
            kind, length = decode_header(self._exactly(HEADER.size))
            return kind, self._exactly(length)
        except (OSError, ProtocolError) as error:
            raise PeerGone from error

    def receive_data(self) -> bytes:
        """The next part of an incoming stream, empty at its end; raises PeerGone if it breaks."""
        kind, payload = self.receive()
        if kind != DATA:
            raise PeerGone("only data frames may follow the request")
        return payload

    def send(self, kind: int, payload: bytes) -> None:
        """Send one frame now; raises PeerGone."""
        try:
            self._socket.sendall(encode_frame(kind, payload))
        except OSError as error:
            raise PeerGone from error

    def wait_unless_gone(self, seconds: float) -> None:
        """Let time pass, for work that sends nothing meanwhile; raises PeerGone if the peer
        closes."""
        poller = select.poll()  # not select(), which takes no descriptor above 1023
        poller.register(self._socket, select.POLLIN | select.POLLRDHUP)
        if poller.poll(seconds * 1000):
            raise PeerGone("the peer closed or sent what nobody asked for")

    def wait_for(self, descriptor: int, event: int) -> None:
        """Wait until `descriptor` is ready, however long; raises PeerGone if the peer closes
        meanwhile."""
        poller = select.poll()
        poller.register(descriptor, event)
        # input may well wait: it is read when there is room for it
        poller.register(self._socket, select.POLLRDHUP)
        ready = dict(poller.poll())
        if self._socket.fileno() in ready:
            raise PeerGone("the peer closed")

    def finish(self, kind: int, reply: dict) -> None:
        """Send the last frame. A refusal may leave input unread, which must not reset it away
        before it is read."""
        try:
            self._socket.sendall(encode_json(kind, reply))
            self._socket.shutdown(socket.SHUT_WR)
            if kind == FAILURE:
                self._discard_input()
        except OSError as error:
            raise PeerGone from error

    def _discard_input(self) -> None:
        give_up = time.monotonic() + DISCARD_S
        self._socket.settimeout(DISCARD_S)
        while self._socket.recv(CHUNK_BYTES) and time.monotonic() < give_up:
            pass

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            if not self._received:
                self._received = self._socket.recv(CHUNK_BYTES)
                if not self._received:
                    raise ProtocolError("the stream ended in the middle")
            part, self._received = self._received[:size], self._received[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


# What a child does for one request; it returns the JSON of the RESULT.
Work = Callable[[Channel], dict]
