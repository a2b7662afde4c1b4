"""Load on a running stack, and what it is judged by."""
import statistics
import threading
from collections.abc import Callable, Sequence


def p99(took: Sequence[float]) -> float:
    """What 99 of 100 stay below."""
    return statistics.quantiles(took, n=100)[98]


class Load:
    """Runs each of `loops` in a thread of its own while the block runs; a loop ends once `ends` is
    set."""

    def __init__(self, *loops: Callable[[], None]) -> None:
        self.ends = threading.Event()
        self._threads = [threading.Thread(target=loop) for loop in loops]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self._threads:
            thread.join()
