"""One open shell: carries what is typed to the guest and what the terminal shows to the client,
until either side, or the watch, ends it.

The thread of the request carries output; the thread of the WebSocket carries input. Whoever ends
the session says how, and hangs up the guest; then the thread of the request closes the WebSocket.
"""
import logging
import threading
from collections.abc import Callable

from simple_websocket import ConnectionClosed
from wsproto.frame_protocol import CloseReason

from app.shell import frames
from app.shell.websocket import ShellSocket
from guest.client.errors import AgentError
from services.guest_calls.guest import can_answer
from services.guest_calls.shells import OpenedShell

log = logging.getLogger(__name__)

ASLEEP = "the sandbox was put to sleep or stopped"
# As long the beginning of a character waits for its end.
_CHARACTER_S = 0.05


class Session:
    """An open shell of one client; `check_credential` raises ServiceError when that is void."""

    def __init__(self, opened: OpenedShell, check_credential: Callable[[], None]) -> None:
        self.opened = opened
        self.check_credential = check_credential
        self._shell = opened.shell
        self._lock = threading.Lock()
        self._ending: tuple[int, str] | None = None
        self._socket: ShellSocket | None = None

    def run(self, link: ShellSocket) -> None:
        """Carry bytes until the end; the WebSocket is closed then."""
        self._socket = link
        link.listen(self._take, self.end, self.hang_up)
        try:
            self._carry_output(link)
        except ConnectionClosed:
            pass  # the client has left, or reads nothing
        except AgentError as error:
            self._lost(error)
        except Exception:  # whatever happens, the client is told that it is over
            log.exception("a shell failed", extra={"sandbox": self.opened.sandbox.id})
            self.end(CloseReason.INTERNAL_ERROR, "internal error")
        self._shell.hang_up()
        link.close(*(self._ending or (CloseReason.NORMAL_CLOSURE, "")))

    def end(self, code: int, reason: str) -> None:
        """Close the shell with this code, from any thread; only the first call counts."""
        with self._lock:
            self._ending = self._ending or (code, reason)
        self._shell.hang_up()

    def hang_up(self) -> None:
        """Its client has left: end the guest's side, from any thread."""
        self._shell.hang_up()

    def break_off(self) -> None:
        """End it although its client does not read, from any thread."""
        self._shell.hang_up()
        if self._socket is not None:
            self._socket.break_off()

    def ping(self) -> None:
        """Make sure that its client is there; takes no time."""
        if self._socket is not None:
            self._socket.ping()

    def fileno(self) -> int:
        """Of its client's connection; -1 if there is none (yet or any more)."""
        return -1 if self._socket is None else self._socket.sock.fileno()

    def _carry_output(self, link: ShellSocket) -> None:
        output = frames.Output()
        while (piece := self._shell.receive(_CHARACTER_S if output.holds else None)) is not None:
            for frame in output.frames(piece) if piece else output.rest():
                link.send(frame)
        for frame in output.rest():
            link.send(frame)
        if self._shell.exit_code is not None:
            link.send(frames.exit_of(self._shell.exit_code))
            self._ending = CloseReason.NORMAL_CLOSURE, ""

    def _lost(self, error: AgentError) -> None:
        """The guest broke off: because it was put to sleep or stopped, or it is dead."""
        log.info("a guest broke a shell off (%s)", type(error).__name__,
                 extra={"sandbox": self.opened.sandbox.id})
        if can_answer(self.opened.sandbox):
            self.end(CloseReason.INTERNAL_ERROR, "the sandbox did not answer")
        else:
            self.end(CloseReason.GOING_AWAY, ASLEEP)

    def _take(self, message: bytes) -> None:
        try:
            kind, payload = frames.read(message)
        except frames.Unsupported as error:
            self.end(CloseReason.UNSUPPORTED_DATA, str(error))
            return
        if kind == frames.DATA:
            self._shell.send(payload)
        elif kind == frames.CONTROL:
            self._resize(payload)
        elif kind == frames.PING:
            self._answer(frames.pong(payload))

    def _resize(self, payload: bytes) -> None:
        try:
            self._shell.resize(*frames.read_resize(payload))
        except ValueError as error:
            self._answer(frames.error_of(str(error)))

    def _answer(self, frame: bytes) -> None:
        try:
            if self._socket is not None:
                self._socket.send(frame)
        except ConnectionClosed:
            pass  # the thread of the request finds out by itself
