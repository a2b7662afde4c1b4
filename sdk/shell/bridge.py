"""Connects the user's terminal with the shell of a sandbox, until the shell ends or the user leaves
with `~.`.

1. The connection is opened, which wakes a sandbox that sleeps, and told the terminal's size.
2. Keys go to the shell, unless it takes none at the moment; then they wait in the terminal.
3. After a sleep or a restart of the service (close 1001), or when the connection broke, the next
   key opens another shell. It is not opened by itself: that would wake what somebody put to sleep.
"""
import os
import selectors

from sdk.shell.connection import ABNORMAL, GOING_AWAY, Closed, Connection
from sdk.shell.escape import Escape
from sdk.shell.frames import CONTROL, DATA, PING, PONG, control, data, resize
from sdk.shell.opening import Open, open_patiently
from sdk.shell.terminal import STDIN, raw, say, show, size

READ_BYTES = 16 * 1024
LEFT, FAILED = 0, 255
CTRL_C, CTRL_D = b"\x03", b"\x04"


def run(open_connection: Open, size_changed: int) -> int:
    """The exit code: the shell's, LEFT if the user left it, FAILED if it cannot go on. Raises
    Refused if the first connection is, and KeyboardInterrupt for a ctrl-C while one is opened:
    until it is open, nobody else could take that key."""
    connection = open_connection()
    while True:
        with raw():
            exit_code = _use(connection, size_changed)
        if exit_code is not None:
            return exit_code
        connection = open_patiently(open_connection)
        say("connected again, in a new shell")


def _use(connection: Connection, size_changed: int) -> int | None:
    """The exit code; None if a key asks for another shell."""
    try:
        return _Shell(connection, size_changed).run()
    except Closed as closed:
        if closed.code not in (GOING_AWAY, ABNORMAL):
            say(f"closed by the service ({closed.code}): {closed.reason or 'no reason given'}")
            return FAILED
        say(f"{closed.reason or 'the connection broke'}; any key opens another shell,"
            " ctrl-C leaves")
    finally:
        connection.close()
    return None if _wait_for_key() else FAILED


class _Shell:
    """One open shell and what moves through it."""

    def __init__(self, connection: Connection, size_changed: int) -> None:
        self._connection = connection
        self._size_changed = size_changed
        self._escape = Escape()
        self._input_open = True
        self._exit_code: int | None = None

    def run(self) -> int:
        """Move bytes until it ends; raises Closed if the connection does first."""
        self._connection.send(resize(*size()))
        self._take_messages()
        while self._exit_code is None:
            for descriptor in self._wait():
                if descriptor == STDIN:
                    self._type()
                elif descriptor == self._size_changed:
                    os.read(self._size_changed, 64)
                    self._connection.send(resize(*size()))
                else:
                    self._connection.flush()
                    self._take_messages()
        return self._exit_code

    def _wait(self) -> list[int]:
        events = selectors.EVENT_READ
        # The default, epoll, takes neither files nor /dev/null, and standard input may be either.
        with selectors.PollSelector() as selector:
            selector.register(self._size_changed, events)
            if self._connection.has_unsent:
                events |= selectors.EVENT_WRITE
            elif self._input_open:
                selector.register(STDIN, events)
            selector.register(self._connection, events)
            return [key.fd for key, _ in selector.select()]

    def _type(self) -> None:
        typed = os.read(STDIN, READ_BYTES)
        if not typed:
            self._input_open = False
            self._connection.send(DATA + CTRL_D)
            return
        passed, leaves = self._escape.pass_on(typed) if os.isatty(STDIN) else (typed, False)
        for message in data(passed):
            self._connection.send(message)
        if leaves:
            self._exit_code = LEFT

    def _take_messages(self) -> None:
        for message in self._connection.messages():
            kind, payload = message[:1], message[1:]
            if kind == DATA:
                show(payload)
            elif kind == PING:
                self._connection.send(PONG + payload)
            elif kind == CONTROL:
                self._take_control(payload)
            if self._exit_code is not None:
                return

    def _take_control(self, payload: bytes) -> None:
        message = control(payload)
        if message.get("type") == "error":
            say(str(message.get("error")))
        elif message.get("type") == "exit" and isinstance(message.get("exitCode"), int):
            self._exit_code = message["exitCode"] & 255


def _wait_for_key() -> bool:
    """True for a key, which nobody else gets; false if the user leaves, or there are no keys."""
    return os.isatty(STDIN) and os.read(STDIN, READ_BYTES) not in (b"", CTRL_C, CTRL_D)
