"""Runs one command for a connection: output as it comes, a deadline for the whole process group,
then the result.

1. The command starts in a session and process group of its own, with root's home and an explicit
   environment.
2. Its pipes are read only while the peer takes what was read, and one that brings a few bytes
   again and again only now and then: each piece is a frame, and the host takes only so many. Beyond
   the cap output is read and dropped.
3. When the command itself has exited, what its pipes hold at that instant is drained and the result
   is sent: a child left in the background that still holds the pipes neither delays the reply nor
   is disturbed.
4. At the deadline the group is killed, and at nothing else: a peer that hangs up may have lost its
   connection to a sleep or a fork. The command goes on, and what it writes is read and dropped.
"""
import fcntl
import os
import signal
import struct
import subprocess
import termios
from functools import partial

from .commands import CannotStart, exec_reply, start
from .connection import Connection
from .loop import READ, Loop, Timer
from .protocol import CHUNK_BYTES, RESULT, STDERR, STDOUT, TIMED_OUT_EXIT_CODE
from .requests import ExecRequest

KILL_GRACE_S = 2.0
# After so many pieces with so few bytes a pipe rests before it is read again: its pieces are at
# most half of what `guest/client/frame_budget.py` takes for no flood.
_PIECES, _FEW_BYTES, _REST_S = 64, 512, 0.002


class _Stream:
    """One output pipe of a command and how much of it has been passed on."""

    def __init__(self, kind: int, descriptor: int, cap_bytes: int) -> None:
        self.kind = kind
        self.descriptor = descriptor
        self.cap_bytes = cap_bytes
        self.sent_bytes = 0
        self.truncated = False
        self.open = True
        self.left_at_exit: int | None = None
        self.small_pieces = 0
        self.rests = False

    @property
    def wanted(self) -> bool:
        return self.open and self.left_at_exit != 0

    def is_to_rest(self, piece_bytes: int) -> bool:
        """Whether it has brought too many small pieces, with this one; a large one makes up for a
        few."""
        change = 1 if piece_bytes < _FEW_BYTES else -8
        self.small_pieces = min(max(self.small_pieces + change, 0), _PIECES)
        return self.small_pieces == _PIECES and self.left_at_exit is None


class Execution:
    """A session that serves one non-detached exec."""

    def __init__(self, loop: Loop, connection: Connection, request: ExecRequest) -> None:
        self._loop = loop
        self._connection = connection
        try:
            self._process = start(request, subprocess.PIPE, subprocess.PIPE)
        except CannotStart as failure:
            connection.send(STDERR, failure.sentence.encode() + b"\n")
            connection.finish(RESULT, exec_reply(failure.exit_code))
            return
        connection.attach(self)
        self._exit_code: int | None = None
        self._timed_out = False
        self._finished = False
        self._streams = [
            _Stream(kind, pipe.fileno(), request.cap_bytes)
            for kind, pipe in ((STDOUT, self._process.stdout), (STDERR, self._process.stderr))
            if pipe
        ]
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.watch(self._pidfd, READ, self._exited)
        for stream in self._streams:
            os.set_blocking(stream.descriptor, False)
        self._watch_streams()
        self._deadline: Timer = loop.call_later(request.timeout_ms / 1000, self._expire)

    def hang_up(self) -> None:
        """The peer is gone: the command goes on, as if its output had reached the cap."""
        for stream in self._streams:
            stream.cap_bytes = stream.sent_bytes
        self._watch_streams()

    def output_drained(self) -> None:
        """The peer has caught up: read the pipes again."""
        self._watch_streams()
        self._finish_if_done()

    def _watch_streams(self) -> None:
        for stream in self._streams:
            reading = stream.wanted and not stream.rests and not self._connection.congested
            if reading:
                self._loop.watch(
                    stream.descriptor, READ, partial(self._read, stream)
                )
            elif stream.open:
                self._loop.unwatch(stream.descriptor)

    def _read(self, stream: _Stream) -> None:
        size = CHUNK_BYTES if stream.left_at_exit is None else min(CHUNK_BYTES, stream.left_at_exit)
        try:
            chunk = os.read(stream.descriptor, size)
        except BlockingIOError:
            return
        if stream.left_at_exit is not None:
            stream.left_at_exit -= len(chunk)
        if chunk:
            self._pass_on(stream, chunk)
        else:
            self._close(stream)
        if stream.is_to_rest(len(chunk)):
            stream.rests = True
            self._loop.call_later(_REST_S, partial(self._read_again, stream))
        if self._connection.congested or stream.rests or not stream.wanted:
            self._watch_streams()
        self._finish_if_done()

    def _read_again(self, stream: _Stream) -> None:
        stream.rests = False
        if not self._finished:
            self._watch_streams()

    def _pass_on(self, stream: _Stream, chunk: bytes) -> None:
        room = stream.cap_bytes - stream.sent_bytes
        if len(chunk) > room:
            stream.truncated = True
            chunk = chunk[:room]
        if chunk:
            stream.sent_bytes += len(chunk)
            self._connection.send(stream.kind, chunk)

    def _exited(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        self._exit_code = status if status >= 0 else 128 - status
        if self._finished:
            return
        for stream in self._streams:
            stream.rests = False
            if stream.open:
                stream.left_at_exit = _readable_bytes(stream.descriptor)
        self._watch_streams()
        self._finish_if_done()

    def _expire(self) -> None:
        if self._exit_code is not None:
            return  # it has exited; only a slow peer is being waited for
        self._timed_out = True
        self._kill_group()
        self._deadline = self._loop.call_later(KILL_GRACE_S, self._give_up)

    def _give_up(self) -> None:
        """The kernel does not let go of the killed command; its caller is answered all the same."""
        if self._exit_code is None:
            self._reply()

    def _finish_if_done(self) -> None:
        if (
            self._exit_code is not None
            and not self._finished
            and not any(s.wanted for s in self._streams)
        ):
            self._reply()

    def _reply(self) -> None:
        exit_code = TIMED_OUT_EXIT_CODE if self._timed_out else self._exit_code or 0
        stdout, stderr = self._streams
        reply = exec_reply(exit_code, pid=self._process.pid, timed_out=self._timed_out,
                           stdout_truncated=stdout.truncated, stderr_truncated=stderr.truncated)
        self._release()
        self._connection.finish(RESULT, reply)

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself in this very moment

    def _release(self) -> None:
        self._finished = True
        self._deadline.cancel()
        for stream in self._streams:
            if stream.open:
                self._close(stream)

    def _close(self, stream: _Stream) -> None:
        self._loop.unwatch(stream.descriptor)
        stream.open = False
        pipe = self._process.stdout if stream.kind == STDOUT else self._process.stderr
        if pipe:
            pipe.close()


def _readable_bytes(descriptor: int) -> int:
    """How many bytes the pipe holds at this instant."""
    return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
