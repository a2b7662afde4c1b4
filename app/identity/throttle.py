"""Slows down guessing: after a few wrong passwords for one address from one place, further tries wait."""
import math
import threading
import time
from collections import OrderedDict

from services.errors import RateLimited

FAILURES, WINDOW_S = 10, 300.0
_REMEMBERED = 10_000


class LoginThrottle:
    """Counts failures per key in memory; the identity host is one process. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, key: str) -> None:
        """Raise RateLimited while `key` has failed too often lately."""
        with self._lock:
            recent = self._recent(key)
            if len(recent) >= FAILURES:
                wait_s = math.ceil(recent[0] + WINDOW_S - time.monotonic())
                raise RateLimited("Too many failed sign-ins; wait a while.", retry_after_s=max(1, wait_s))

    def failed(self, key: str) -> None:
        """Note a wrong password."""
        with self._lock:
            self._failures[key] = [*self._recent(key), time.monotonic()]
            self._failures.move_to_end(key)
            while len(self._failures) > _REMEMBERED:
                self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """Forget what went wrong before."""
        with self._lock:
            self._failures.pop(key, None)

    def _recent(self, key: str) -> list[float]:
        return [moment for moment in self._failures.get(key, []) if moment > time.monotonic() - WINDOW_S]
