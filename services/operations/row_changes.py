"""Waits for a row to change: LISTEN/NOTIFY makes it quick, a poll makes it sure.

One thread per process listens; a waiter blocks on an event of its own. Whenever the thread begins
to listen, also after it has lost its connection, everybody looks again. A notification that is lost
all the same costs one poll interval.
"""
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from models.database import DatabaseUnavailable, connection, database
from services.operations.listening import Listener

Result = TypeVar("Result")

_CHANNEL = "sandbox"
_POLL_S, _POLL_MAX_S = 0.5, 2.0
# Where many wait long, a lost notification may cost more.
_UNSURE_S = 10.0


def notify(sandbox_id: str) -> None:
    """Tell all waiters, once the current transaction commits, that something about this sandbox
    changed."""
    database.execute_sql("SELECT pg_notify(%s, %s)", (_CHANNEL, sandbox_id))


class _Bell(Protocol):
    """What the listener sets when a sandbox has changed; an event, or something like one."""

    def set(self) -> None: ...


@dataclass(frozen=True, eq=False)
class _Call:
    """A bell that calls."""

    set: Callable[[], None]


class _Listener(Listener):
    """Rings the bells registered for a sandbox that has changed. Once it has ended, who waits goes
    on polling."""

    def __init__(self) -> None:
        super().__init__(_CHANNEL, self._wake, self._wake_all)
        self._lock = threading.Lock()
        self._bells: dict[str, set[_Bell]] = defaultdict(set)

    def register(self, sandbox_id: str, bell: _Bell) -> None:
        with self._lock:
            self._bells[sandbox_id].add(bell)

    def unregister(self, sandbox_id: str, bell: _Bell) -> None:
        with self._lock:
            self._bells[sandbox_id].discard(bell)
            if not self._bells[sandbox_id]:
                del self._bells[sandbox_id]

    def _wake(self, sandbox_ids: list[str]) -> None:
        with self._lock:
            for sandbox_id in sandbox_ids:
                for bell in self._bells.get(sandbox_id, ()):
                    bell.set()

    def _wake_all(self) -> None:
        """What changed while nobody listened was told to nobody."""
        with self._lock:
            for bells in self._bells.values():
                for bell in bells:
                    bell.set()


_listener: _Listener | None = None
_listener_lock = threading.Lock()


def _get_listener() -> _Listener:
    global _listener
    with _listener_lock:
        if _listener is None or not _listener.is_alive():
            _listener = _Listener()
            _listener.start()
        return _listener


def stop_listening() -> None:
    """End this process's listener, if it has one, before its database goes; the next wait starts
    another."""
    global _listener
    with _listener_lock:
        if _listener is not None:
            _listener.end()
            _listener = None


def wait_until(sandbox_id: str, probe: Callable[[], Result | None], timeout_s: float, *,
               of_many: bool = False, patient: bool = False) -> Result | None:
    """Call `probe` now and after each change of the sandbox until it gives something; None after
    `timeout_s` seconds.

    The probe runs with a database connection that is given back between calls, so waiting holds
    none. A wait `of_many` costs the database next to nothing: without a change it is looked at
    every 10 seconds only. A `patient` one is for what this request has made, which its caller must
    be told: it takes a database that is away for one with nothing to say yet; to any other the
    error goes through.
    """
    deadline, poll_s = time.monotonic() + timeout_s, _UNSURE_S if of_many else _POLL_S
    listener = _get_listener()
    event = threading.Event()
    listener.register(sandbox_id, event)
    try:
        while True:
            event.clear()
            try:
                with connection():
                    result = probe()
            except DatabaseUnavailable:
                if not patient:
                    raise
                result = None
            if result is not None:
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            event.wait(min(left, poll_s))
            poll_s = poll_s if of_many else min(2 * poll_s, _POLL_MAX_S)
    finally:
        listener.unregister(sandbox_id, event)


@contextmanager
def changes(sandbox_id: str) -> Iterator[Callable[[], bool]]:
    """Gives a question that costs nothing to ask: may the sandbox have changed since it was asked
    last?

    It says yes the first time, after each change, and every 10 seconds to be sure.
    """
    listener = _get_listener()
    event = threading.Event()
    listener.register(sandbox_id, event)
    event.set()
    sure_until = 0.0

    def changed() -> bool:
        nonlocal sure_until
        if not event.is_set() and time.monotonic() < sure_until:
            return False
        event.clear()
        sure_until = time.monotonic() + _UNSURE_S
        return True

    try:
        yield changed
    finally:
        listener.unregister(sandbox_id, event)


@contextmanager
def told_of_changes(sandbox_id: str, tell: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `tell` after each change of the sandbox.

    It is called by the thread that listens, so it returns at once and asks the database nothing. A
    notification may be lost: whoever waits long looks by itself now and then.
    """
    listener, bell = _get_listener(), _Call(tell)
    listener.register(sandbox_id, bell)
    try:
        yield
    finally:
        listener.unregister(sandbox_id, bell)
