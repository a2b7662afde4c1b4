"""A shell that runs in a guest: what is typed goes in, what the terminal shows comes out, and its
exit code ends it.

Nothing is kept beyond one frame and one piece: a caller that does not read holds the guest's
program back, and a guest that does not read holds `send` back, both by TCP. One thread may read
while another sends.
"""
import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from guest.agent.protocol import (
    CHUNK_BYTES,
    CONTROL,
    DATA,
    FAILURE,
    MAX_TERMINAL_SIDE,
    RESULT,
    SHELL_SIGNALS,
    STDOUT,
    FrameReader,
    ProtocolError,
    decode_json,
    encode_frame,
    encode_json,
)
from guest.client.conversation import failure
from guest.client.errors import AgentProtocolError, AgentUnreachable
from guest.client.frame_budget import Allowance, StreamBudget

PIECE_BYTES = 32 * 1024
# Small, because what is under way is what a user still sees after ctrl-C.
_BUFFER_BYTES = 128 * 1024
_SOCKET_OPTIONS: tuple[tuple[int, int, int | bytes], ...] = (
    (socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES),
    # closing resets: an ordinary end would wait behind what the guest has not taken yet
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
    # a guest that is gone without a word is noticed within a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
# A guest that sends a few bytes at a time is listened to a hundred times a second, after a start.
_FEW_BYTES, _LOOKS, _PAUSE_S = 4096, 64, 0.01


class OpenShell:
    """Owns the connection; use as a context manager, or `close` it. Leaving it hangs up."""

    def __init__(self, connection: socket.socket, received: bytes = b"") -> None:
        connection.setblocking(False)
        for level, option, value in _SOCKET_OPTIONS:
            connection.setsockopt(level, option, value)
        self._socket = connection
        self._sending = threading.Lock()
        self._reader = FrameReader()
        self._reader.feed(received)
        self._output = bytearray()
        self._budget = StreamBudget()
        self._looks = Allowance(_LOOKS, 1 / _PAUSE_S)
        self._hung_up = False
        self.exit_code: int | None = None
        """How the shell ended, 128 and the number for a signal; None while it runs, and for ever if
        we hung up."""

    def __enter__(self) -> "OpenShell":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """To wait on, for a caller that polls: call `receive(0)` until it gives nothing, then wait
        until this is readable."""
        return self._socket.fileno()

    def output(self) -> Iterator[bytes]:
        """Pieces of output as they come, of at most PIECE_BYTES, until the shell has ended or
        `hang_up` was called; `exit_code` tells which. Raises as `receive`."""
        while (piece := self.receive()) is not None:
            yield piece

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """The next piece of output, at most PIECE_BYTES, cut anywhere; empty if there was none in
        `timeout_s` (None waits for ever); None once the shell has ended or `hang_up` was called.

        Raises AgentUnreachable if the connection broke, AgentProtocolError for what no agent of
        ours sends, AgentRefused if the agent gave up.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._take_frames()
            if self._output:
                piece = bytes(self._output[:PIECE_BYTES])
                del self._output[:PIECE_BYTES]
                return piece
            if self.exit_code is not None or self._hung_up:
                return None
            if not self._wait(select.POLLIN, until):
                return b""
            self._read()

    def send(self, content: bytes) -> None:
        """Type these bytes; returns when the kernel has taken them, so it waits for as long as the
        guest takes none. What is sent to a shell that has ended is lost, and `receive` says so."""
        for start in range(0, len(content), PIECE_BYTES):
            self._send(encode_frame(DATA, content[start:start + PIECE_BYTES]))

    def resize(self, cols: int, rows: int) -> None:
        """Give the terminal another size; its programs hear of it. Waits as `send` does; raises
        ValueError for a size outside 1 to 4096."""
        check_size(cols, rows)
        self._control({"type": "resize", "cols": cols, "rows": rows})

    def signal(self, name: str) -> None:
        """Send a signal (`INT`, without SIG) to the terminal's group in the foreground. Waits as
        `send` does; raises ValueError for one that is not in SHELL_SIGNALS."""
        if name not in SHELL_SIGNALS:
            raise ValueError(f"a shell passes on {', '.join(sorted(SHELL_SIGNALS))} only")
        self._control({"type": "signal", "name": name})

    def hang_up(self) -> None:
        """End the connection, from any thread and at any time: the guest hangs up the shell, and
        whoever waits in `receive` or `send` returns at once. `close` is still to be called."""
        self._hung_up = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up and free the socket; no other thread may use the shell any more."""
        self.hang_up()
        self._socket.close()

    def _control(self, message: dict[str, Any]) -> None:
        self._send(encode_json(CONTROL, message))

    def _send(self, frame: bytes) -> None:
        remaining = memoryview(frame)
        with self._sending:
            while remaining:
                try:
                    remaining = remaining[self._socket.send(remaining):]
                except BlockingIOError:
                    self._wait(select.POLLOUT, None)
                except OSError:
                    return  # the shell has ended, or the connection: the output tells which

    def _wait(self, event: int, until: float | None) -> bool:
        """False if nothing happened until then. It is poll, because select fails for a process with
        more than 1023 open files."""
        poller = select.poll()
        poller.register(self._socket, event)
        left_s = None if until is None else max(until - time.monotonic(), 0)
        return bool(poller.poll(None if left_s is None else left_s * 1000))

    def _read(self) -> None:
        try:
            received = self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if self._hung_up:
                return
            raise AgentUnreachable(f"the connection to the shell broke: {error}") from error
        if not received and not self._hung_up:
            raise AgentUnreachable("the guest agent closed the connection of a running shell")
        self._reader.feed(received)
        if len(received) < _FEW_BYTES and not self._looks.spend(1):
            time.sleep(_PAUSE_S)

    def _take_frames(self) -> None:
        """Put what has come into one piece, as far as it fits."""
        try:
            for kind, payload in self._reader.frames():
                self._budget.count(kind, len(payload))
                self._take(kind, payload)
                if len(self._output) >= PIECE_BYTES:
                    return
        except ProtocolError as error:
            raise AgentProtocolError(str(error)) from error

    def _take(self, kind: int, payload: bytes) -> None:
        if self.exit_code is not None or kind not in (STDOUT, RESULT, FAILURE):
            raise AgentProtocolError(
                f"the guest agent sent a frame of type {kind} where none of a shell's belongs")
        if kind == STDOUT:
            self._output += payload
        elif kind == FAILURE:
            raise failure(decode_json(payload))
        else:
            self.exit_code = _exit_code(decode_json(payload))


def check_size(cols: int, rows: int) -> None:
    """Raises ValueError unless a terminal can have this size."""
    if not (1 <= cols <= MAX_TERMINAL_SIDE and 1 <= rows <= MAX_TERMINAL_SIDE):
        raise ValueError(f"a terminal has 1 to {MAX_TERMINAL_SIDE} columns and rows")


def _exit_code(reply: dict[str, Any]) -> int:
    code = reply.get("exitCode")
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        raise AgentProtocolError("the guest agent sent no usable exitCode")
    return code
