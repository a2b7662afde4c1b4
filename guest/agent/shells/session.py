"""Connects a shell's terminal with the connection that opened it.

1. What the terminal shows is read while the peer takes it: not while OUTPUT_HIGH_BYTES of the
   connection wait to be sent.
2. What is typed is read while the terminal takes it: not while TYPED_HIGH_BYTES wait.
3. When the shell ends, what its terminal holds at that instant is sent, then the result.
4. When the connection ends first, the terminal is hung up.
"""
import signal
from collections.abc import Callable

from ..connection import Connection
from ..loop import READ, WRITE, Loop
from ..protocol import CONTROL, DATA, RESULT, STDOUT, ProtocolError
from .account import Account
from .request import Resize, ShellRequest, control
from .terminal import Terminal

OPENED = b'{"type":"opened"}'
TYPED_HIGH_BYTES = 64 * 1024
# A program that writes byte by byte would make a frame of each; after a small one the terminal may
# gather for a moment. It keeps what we send far below what the host takes for a flood.
FEW_BYTES, GATHER_S = 512, 0.002


class ShellSession:
    """Serves one open shell and calls `over` with itself when it has ended; raises Refused if it
    cannot be started."""

    def __init__(self, loop: Loop, connection: Connection, request: ShellRequest, account: Account,
                 over: Callable[["ShellSession"], None]) -> None:
        self._loop = loop
        self._connection = connection
        self._over = over
        self._typed = bytearray()
        self._watched = 0
        self._terminal = Terminal(loop, request, account, self._shell_ended)
        self._gathering = loop.call_later(0, self._gathered)
        connection.send(CONTROL, OPENED)
        connection.attach_for_input(self)

    def take(self, kind: int, payload: bytes) -> None:
        """A frame of the peer's; raises ProtocolError for one that has no place here."""
        if kind == CONTROL:
            message = control(payload)
            if isinstance(message, Resize):
                self._terminal.resize(message)
            else:
                self._terminal.signal(signal.Signals[f"SIG{message.name}"])
        elif kind == DATA and payload:
            self._typed += payload
            self._type()
            self._watch()
        else:
            raise ProtocolError("only what is typed and control messages may follow the request")

    def output_drained(self) -> None:
        """The peer has caught up: read the terminal again."""
        self._watch()

    def drop(self) -> None:
        """The peer cannot be there any more, whatever the connection says."""
        self._connection.close()

    def hang_up(self) -> None:
        """The peer is gone."""
        self._leave_terminal()
        self._terminal.hang_up()

    def _shell_ended(self, exit_code: int) -> None:
        self._leave_terminal()
        if rest := self._terminal.read():
            self._connection.send(STDOUT, rest)
        self._terminal.close()
        self._connection.finish(RESULT, {"exitCode": exit_code})

    def _leave_terminal(self) -> None:
        self._gathering.cancel()
        self._loop.unwatch(self._terminal.fileno())
        self._over(self)

    def _watch(self) -> None:
        events = WRITE if self._typed else 0
        if self._reading():
            events |= READ
        if events != self._watched:
            self._watched = events
            self._loop.watch(self._terminal.fileno(), events, self._ready)

    def _reading(self) -> bool:
        return not (self._connection.congested or self._terminal.silent
                    or self._gathering.callback)

    def _ready(self) -> None:
        self._type()
        if self._reading():
            self._show()
        self._watch()

    def _type(self) -> None:
        if self._typed:
            del self._typed[:self._terminal.write(self._typed)]
        self._connection.pause_input(paused=len(self._typed) >= TYPED_HIGH_BYTES)

    def _show(self) -> None:
        shown = self._terminal.read()
        if shown:
            self._connection.send(STDOUT, shown)
        if len(shown) < FEW_BYTES:
            self._gathering = self._loop.call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._gathering.cancel()
        self._watch()
