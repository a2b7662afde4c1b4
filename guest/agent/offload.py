"""Runs slow work in a forked child that owns the connection, so that the event loop never waits for
a disk.

The child uses the socket in plain blocking style and always ends by itself; the agent only reaps
it. The agent has one thread, which is what makes a bare fork safe.
"""
import os
import socket
import sys
from collections import deque

from .channel import Channel, PeerGone, Work
from .connection import Connection
from .loop import READ, Callback, Loop
from .protocol import FAILED, FAILURE, RESULT, Refused

MAX_CHILDREN = 32


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

    loop.watch(descriptor, READ, reap)


def _live_as_child(channel: Channel, keep: int, work: Work) -> None:
    status = 1
    try:
        close_inherited(keep)
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
    except PeerGone:
        raise
    except Exception as error:
        channel.finish(FAILURE,
                       {"code": FAILED, "message": f"the agent could not do it: {error!r}"})
    else:
        channel.finish(RESULT, result)


def close_inherited(keep: int = -1) -> None:
    """Close, in a child, the agent's descriptors but its standard ones and `keep`: a copy of a
    pipe's read end would keep a command from seeing EPIPE."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != keep:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the descriptor listdir itself used
