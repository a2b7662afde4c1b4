"""Says how long a password may be, hashes passwords and compares them, a few at a time.

A hash takes 64 MiB while it is made, and four threads of its own, so many at once would only take
memory from each other and the process. 1. A caller takes a turn, or stands in line behind those who
came before it. 2. If the line is full, or the turn does not come in time, it is refused; nothing
was hashed then. 3. Whoever ends its turn gives it to the first in line.
"""
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import argon2

from services.errors import InvalidRequest, Unavailable

LENGTH_MIN, LENGTH_MAX = 8, 256
# Two keep the CPU busy while one of them waits for the lock of the interpreter; 128 MiB at most.
AT_ONCE = 2
# As many as are hashed in about the time that somebody waits for them; the identity process has
# threads for them and for other requests (config/gunicorn/identity.py).
LINE_MAX = 32
_WAIT_S = 15.0
_RETRY_AFTER_S = 5
_hasher = argon2.PasswordHasher()


class Turns:
    """Lets `at_once` threads through; `line_max` others wait in the order in which they came, each
    for `wait_s` seconds at most."""

    def __init__(self, at_once: int, line_max: int, wait_s: float) -> None:
        self._free, self._line_max, self._wait_s = at_once, line_max, wait_s
        self._line: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a turn; raises Unavailable if there is none in time."""
        self._take()
        try:
            yield
        finally:
            self._give_on()

    def _take(self) -> None:
        with self._lock:
            # As long as somebody waits, none is free.
            if self._free:
                self._free -= 1
                return
            if len(self._line) >= self._line_max:
                raise too_many()
            called = threading.Event()
            self._line.append(called)
        if called.wait(self._wait_s):
            return
        with self._lock:
            if not called.is_set():  # else the turn came at the last moment
                self._line.remove(called)
                raise too_many()

    def _give_on(self) -> None:
        with self._lock:
            if self._line:
                self._line.popleft().set()
            else:
                self._free += 1


_turns = Turns(AT_ONCE, LINE_MAX, _WAIT_S)


def check_length(password: str) -> None:
    """Raises InvalidRequest for a password that is too short or too long to be taken."""
    if not LENGTH_MIN <= len(password) <= LENGTH_MAX:
        raise InvalidRequest(f"a password has {LENGTH_MIN} to {LENGTH_MAX} characters")


def make_hash(password: str) -> str:
    """A hash to keep, with a salt of its own; raises Unavailable if too many are being made."""
    with _turns.turn():
        return _hasher.hash(password)


def matches(password_hash: str, password: str) -> bool:
    """Whether the hash was made of this password; raises Unavailable if too many are being
    compared."""
    with _turns.turn():
        try:
            return _hasher.verify(password_hash, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False


def too_many() -> Unavailable:
    """What is said to who is not let in."""
    return Unavailable("Too many people are signing in at once; try again in a moment.",
                       retry_after_s=_RETRY_AFTER_S)
