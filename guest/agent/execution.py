"""Runs one command for a connection: output as it comes, a deadline for the whole process group,
then the result.

1. The command starts in a session and process group of its own, with root's home and an explicit
   environment.
2. Its pipes are read only while the peer takes what was read; beyond the cap output is read and
   dropped.
3. When the command itself has exited, what its pipes hold at that instant is drained and the result
   is sent: a child left in the background that still holds the pipes neither delays the reply nor
   is disturbed.
4. At the deadline the group is killed. If the peer hangs up the group is killed too, unless the
   command is detached.
"""
import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
from functools import partial
from typing import Any

from .connection import Connection
from .loop import Loop, Timer
from .offload import reap_when_dead
from .protocol import (
    CHUNK_BYTES,
    NOT_EXECUTABLE_EXIT_CODE,
    NOT_FOUND,
    NOT_FOUND_EXIT_CODE,
    RESULT,
    STDERR,
    STDOUT,
    TIMED_OUT_EXIT_CODE,
    Refused,
)
from .requests import ExecRequest

KILL_GRACE_S = 2.0
LOG_DIR = "/var/log/svc"


class CannotStart(Exception):
    """The program does not exist or cannot be executed; the caller gets a code and a sentence, as
    from a shell."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


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

    @property
    def wanted(self) -> bool:
        return self.open and self.left_at_exit != 0


def start(request: ExecRequest, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start the command; raises CannotStart, or Refused if its working directory does not exist."""
    try:
        process = subprocess.Popen(
            request.argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=request.cwd,
            env=request.env, start_new_session=True, bufsize=0,
        )
    except OSError as error:
        raise _explain(request, error) from error
    expose_to_oom_killer(process.pid)
    return process


def start_detached(loop: Loop, request: ExecRequest, root: str) -> dict:
    """Start the command with its output in a log file and leave it alone; the reply says where both
    are."""
    log_path, log = _open_log(root)
    try:
        process = start(request, log, log)
    except CannotStart as failure:
        os.write(log, failure.sentence.encode() + b"\n")
        return _result(failure.exit_code, log_path=log_path)
    finally:
        os.close(log)
    reap_when_dead(loop, process.pid)
    process.returncode = 0  # it is reaped elsewhere; Popen must not try to
    return _result(0, pid=process.pid, log_path=log_path)


class Execution:
    """A session that serves one non-detached exec."""

    def __init__(self, loop: Loop, connection: Connection, request: ExecRequest) -> None:
        self._loop = loop
        self._connection = connection
        try:
            self._process = start(request, subprocess.PIPE, subprocess.PIPE)
        except CannotStart as failure:
            connection.send(STDERR, failure.sentence.encode() + b"\n")
            connection.finish(RESULT, _result(failure.exit_code))
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
        loop.watch(self._pidfd, selectors.EVENT_READ, self._exited)
        for stream in self._streams:
            os.set_blocking(stream.descriptor, False)
        self._watch_streams()
        self._deadline: Timer = loop.call_later(request.timeout_ms / 1000, self._expire)

    def hang_up(self) -> None:
        """The peer is gone: nobody wants the output, so the whole group ends."""
        if self._exit_code is None:
            self._kill_group()
        self._release()

    def output_drained(self) -> None:
        """The peer has caught up: read the pipes again."""
        self._watch_streams()
        self._finish_if_done()

    def _watch_streams(self) -> None:
        for stream in self._streams:
            reading = stream.wanted and not self._connection.congested
            if reading:
                self._loop.watch(
                    stream.descriptor, selectors.EVENT_READ, partial(self._read, stream)
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
        if self._connection.congested or not stream.wanted:
            self._watch_streams()
        self._finish_if_done()

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
        reply = _result(exit_code, pid=self._process.pid, timed_out=self._timed_out,
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


def _result(exit_code: int, *, pid: int | None = None, timed_out: bool = False,
            stdout_truncated: bool = False, stderr_truncated: bool = False,
            log_path: str | None = None) -> dict:
    reply: dict[str, Any] = {
        "exitCode": exit_code, "timedOut": timed_out, "stdoutTruncated": stdout_truncated,
        "stderrTruncated": stderr_truncated, "pid": pid,
    }
    if log_path is not None:
        reply["logPath"] = log_path
    return reply


def _explain(request: ExecRequest, error: OSError) -> Exception:
    """What a failed start means to the caller: a missing directory is a refusal, a bad program an
    exit code."""
    if not os.path.isdir(request.cwd):
        return Refused(NOT_FOUND, f"the working directory {request.cwd} does not exist")
    program = request.argv[0]
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CannotStart(NOT_FOUND_EXIT_CODE, f"{program}: not found")
    return CannotStart(NOT_EXECUTABLE_EXIT_CODE, f"{program}: cannot be executed: {error.strerror}")


def _readable_bytes(descriptor: int) -> int:
    """How many bytes the pipe holds at this instant."""
    return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]


def expose_to_oom_killer(pid: int) -> None:
    """The agent is spared by the kernel's out-of-memory killer; what it runs for callers must not
    inherit that."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as score:
            score.write(b"0")
    except OSError:
        pass  # it has ended already


def _open_log(root: str) -> tuple[str, int]:
    """A new log file under LOG_DIR: its path as the guest sees it, and a descriptor open for
    appending."""
    directory = root + LOG_DIR
    os.makedirs(directory, exist_ok=True)
    number = 1 + max((_log_number(name) for name in os.listdir(directory)), default=0)
    while True:
        path = f"{LOG_DIR}/exec-{number}.log"
        try:
            return path, os.open(root + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND,
                                 0o640)
        except FileExistsError:
            number += 1


def _log_number(name: str) -> int:
    digits = name.removeprefix("exec-").removesuffix(".log")
    return int(digits) if digits.isdigit() else 0
