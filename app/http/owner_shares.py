"""Counts what callers hold of something that there is only so much of: threads, bytes, requests."""
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Places:
    """Room for all owners, counted in places; one owner may hold `share` of its `capacity`."""

    def __init__(self, capacity: int, share: int) -> None:
        self.capacity, self.share = max(1, capacity), max(1, share)
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._total = 0

    def take(self, owner: str, count: int = 1) -> bool:
        """Take places for `owner`; False, and nothing taken, when there are not as many left."""
        with self._lock:
            if self._held[owner] + count > self.share or self._total + count > self.capacity:
                return False
            self._held[owner] += count
            self._total += count
            return True

    def give_back(self, owner: str, count: int = 1) -> None:
        """End what `take` began."""
        with self._lock:
            self._held[owner] -= count
            self._total -= count
            if not self._held[owner]:
                del self._held[owner]

    @contextmanager
    def held(self, owner: str, refusal: Exception) -> Iterator[None]:
        """Hold a place of `owner`'s; raises `refusal` when there is none left."""
        if not self.take(owner):
            raise refusal
        try:
            yield
        finally:
            self.give_back(owner)
