"""Looks after the open shells of this process, in one thread: what ends a shell from outside, and
what keeps its sandbox awake.

1. A sandbox that was put to sleep or stopped closes its shells with 1001, as soon as its row says
so; a lost notification costs ROWS_EVERY_S. 2. A credential that was revoked, or whose account is
gone, closes its shells with 1008 within SVC_IDENTITY_POLL_S. 3. Activities are renewed. 4. A client
that left while its guest takes no input is noticed here, because nobody reads from it. 5. When the
process ends, all shells are closed with 1001.
"""
import logging
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from wsproto.frame_protocol import CloseReason

from app.shell.limits import PING_S
from app.shell.session import ASLEEP, Session
from models.database import DatabaseFailed
from services.errors import ServiceError, Unauthenticated
from services.guest_calls.guest import can_answer
from services.guest_calls.shells import RENEW_EVERY_S, keep_awake
from services.operations.row_changes import told_of_changes

log = logging.getLogger(__name__)

ROWS_EVERY_S = 30.0
_CREDENTIALS_EVERY_S = 10.0
_TICK_S = 1.0
# From the end of the process to the end of shells whose clients do not read.
_FORCED_AFTER_S = 3.0
_UNTOLD = (DatabaseFailed, ServiceError)


class Watch:
    """The open shells of this process; `start` before the first one."""

    def __init__(self, identity_poll_s: float) -> None:
        self._sessions: set[Session] = set()
        self._changed: set[Session] = set()
        self._turn = threading.Condition()
        self._closing_until: float | None = None
        self._chores: list[_Chore] = [
            _Chore(_TICK_S, self._notice_absent),
            _Chore(PING_S, self._ping),
            _Chore(RENEW_EVERY_S, self._renew),
            _Chore(min(_CREDENTIALS_EVERY_S, identity_poll_s), self._check_credentials),
            _Chore(ROWS_EVERY_S, lambda: self._check_rows(self._open())),
        ]

    def start(self) -> None:
        """Begin to watch, in a thread of this process."""
        threading.Thread(target=self._run, name="shell-watch", daemon=True).start()

    @contextmanager
    def watched(self, session: Session) -> Iterator[None]:
        """Look after a session while the block runs."""
        with ExitStack() as stack:
            stack.enter_context(told_of_changes(session.opened.sandbox.id,
                                                lambda: self._note(session)))
            stack.callback(self._forget, session)
            with self._turn:
                self._sessions.add(session)
                closing = self._closing_until is not None
            if closing:
                self._close(session)
            self._note(session)  # what happened before we listened
            yield

    def close_all(self) -> None:
        """The process ends: close every shell, also those that are just being opened."""
        with self._turn:
            self._closing_until = time.monotonic() + _FORCED_AFTER_S
        for session in self._open():
            self._close(session)

    def _close(self, session: Session) -> None:
        session.end(CloseReason.GOING_AWAY, "the service restarts; connect again")

    def _note(self, session: Session) -> None:
        with self._turn:
            self._changed.add(session)
            self._turn.notify()

    def _forget(self, session: Session) -> None:
        with self._turn:
            self._sessions.discard(session)
            self._changed.discard(session)

    def _open(self) -> list[Session]:
        with self._turn:
            return list(self._sessions)

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._changed, _TICK_S)
                changed, self._changed = self._changed & self._sessions, set()
            self._try(lambda: self._check_rows(list(changed)))
            for chore in self._chores:
                if chore.is_due():
                    self._try(chore.do)
            if self._closing_until is not None and time.monotonic() > self._closing_until:
                for session in self._open():
                    session.break_off()

    def _try(self, chore: Callable[[], None]) -> None:
        try:
            chore()
        except _UNTOLD as error:
            log.warning("open shells could not be looked after (%s)", type(error).__name__)
        except Exception:
            log.exception("open shells could not be looked after")

    def _check_rows(self, sessions: list[Session]) -> None:
        for session in sessions:
            if not can_answer(session.opened.sandbox):
                session.end(CloseReason.GOING_AWAY, ASLEEP)

    def _check_credentials(self) -> None:
        for session in self._open():
            try:
                session.check_credential()
            except Unauthenticated:
                session.end(CloseReason.POLICY_VIOLATION, "the credential is not valid any more")

    def _renew(self) -> None:
        keep_awake([session.opened for session in self._open()])

    def _ping(self) -> None:
        for session in self._open():
            session.ping()

    def _notice_absent(self) -> None:
        poller, sessions = select.poll(), {}
        for session in self._open():
            if (descriptor := session.fileno()) >= 0:
                sessions[descriptor] = session
                poller.register(descriptor, select.POLLRDHUP)
        for descriptor, _ in poller.poll(0):
            sessions[descriptor].hang_up()


class _Chore:
    """What is done every so many seconds."""

    def __init__(self, every_s: float, do: Callable[[], None]) -> None:
        self._every_s, self.do = every_s, do
        self._due_at = time.monotonic() + every_s

    def is_due(self) -> bool:
        """True every `every_s` seconds."""
        if time.monotonic() < self._due_at:
            return False
        self._due_at = time.monotonic() + self._every_s
        return True
