"""Runs slow work in a forked child that owns the connection, so that the event loop never waits for
a disk.

The child uses the socket in plain blocking style and always ends by itself; the agent only reaps
it. The agent has one thread, which is what makes a bare fork safe.
"""
import os
import select
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable

from .connection import Connection
from .loop import Callback, Loop
from .protocol import (
    CHUNK_BYTES,
    FAILED,
    FAILURE,
    HEADER,
    RESULT,
    ProtocolError,
    Refused,
    decode_header,
    encode_frame,
    encode_json,
)

IO_TIMEOUT_S = 60.0
DISCARD_S = 10.0
MAX_CHILDREN = 32


class PeerGone(Exception):
    """The peer closed, stalled or broke the protocol; there is nobody to tell."""


class Channel:
    """The child's view of the connection: blocking frames in both directions, every wait
    bounded."""

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

    def send(self, kind: int, payload: bytes) -> None:
        """Send one frame now; raises PeerGone."""
        try:
            self._socket.sendall(encode_frame(kind, payload))
        except OSError as error:
            raise PeerGone from error

    def wait_unless_gone(self, seconds: float) -> None:
        """Let time pass, for work that sends nothing meanwhile; raises PeerGone if the peer
        closes."""
        readable, _, _ = select.select([self._socket], [], [], seconds)
        if readable:
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


Work = Callable[[Channel], dict]


class Offload:
    """Starts the children, at most MAX_CHILDREN at a time; further connections wait their turn."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._running = 0
        self._waiting: deque[tuple[socket.socket, bytes, Work]] = deque()

    def answer(self, connection: Connection, work: Work) -> None:
        """Answer `connection` with the result of `work`, run in a child process that takes the
        socket over."""
        self._waiting.append((*connection.detach(), work))
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_CHILDREN:
            peer, received, work = self._waiting.popleft()
            child = os.fork()
            if child == 0:
                _live_as_child(Channel(peer, received), peer.fileno(), work)
            peer.close()
            self._running += 1
            reap_when_dead(self._loop, child, self._one_ended)

    def _one_ended(self) -> None:
        self._running -= 1
        self._start_next()


def reap_when_dead(loop: Loop, pid: int, then: Callback | None = None) -> None:
    """Collect the exit status of child `pid` when it ends, whenever that is, and call `then`."""
    descriptor = os.pidfd_open(pid)

    def reap() -> None:
        loop.unwatch(descriptor)
        os.close(descriptor)
        os.waitpid(pid, 0)
        if then:
            then()

    loop.watch(descriptor, selectors.EVENT_READ, reap)


def _live_as_child(channel: Channel, keep: int, work: Work) -> None:
    status = 1
    try:
        _close_inherited(keep)
        _answer(channel, work)
        status = 0
    except PeerGone:
        pass
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _answer(channel: Channel, work: Work) -> None:
    try:
        result = work(channel)
    except Refused as refusal:
        channel.finish(FAILURE, {"code": refusal.code, "message": refusal.message})
    except (MemoryError, OSError, ValueError) as error:
        channel.finish(FAILURE,
                       {"code": FAILED, "message": f"the agent could not do it: {error!r}"})
    else:
        channel.finish(RESULT, result)


def _close_inherited(keep: int) -> None:
    """Close the agent's other descriptors: a copy of a pipe's read end here would keep a command
    from seeing EPIPE."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != keep:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the descriptor listdir itself used
