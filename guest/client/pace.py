"""A deadline that also ends a stream whose other end moves less than a least rate.

Only the time spent waiting for the guest counts, so a slow object store at our own end harms
nobody.
"""
import time

from guest.client.deadline import Deadline
from guest.client.errors import AgentTooSlow

WINDOW_S = 20.0


class Pace(Deadline):
    """Counts down from `seconds`, and demands `min_bytes_per_s` in each window of WINDOW_S spent
    waiting."""

    def __init__(self, seconds: float, min_bytes_per_s: float) -> None:
        super().__init__(seconds)
        self._window_s = WINDOW_S
        self._least_bytes = min_bytes_per_s * WINDOW_S
        self._demanding = True
        self._begun: float | None = None
        self._start_window()

    def left_s(self) -> float:
        """Seconds until the deadline or the end of the window; raises AgentTimeout, AgentTooSlow.
        From here on the guest is waited for, until `moved` says that bytes have passed."""
        self._count()
        if self._demanding and self._waited_s >= self._window_s:
            if self._bytes < self._least_bytes:
                raise AgentTooSlow(
                    f"the guest agent moved {self._bytes} bytes in {self._window_s:g} s")
            self._start_window()
        self._begun = time.monotonic()
        left = super().left_s()
        return max(min(left, self._window_s - self._waited_s), 0.001) if self._demanding else left

    def moved(self, size: int) -> None:
        """So many bytes have come or gone; the guest is not waited for until `left_s`."""
        self._count()
        self._begun = None
        self._bytes += size

    def content_is_over(self) -> None:
        """Only the deadline counts from now on: the guest works on what it was sent."""
        self._demanding = False

    def _count(self) -> None:
        if self._begun is not None:
            present = time.monotonic()
            self._waited_s += present - self._begun
            self._begun = present

    def _start_window(self) -> None:
        self._waited_s, self._bytes = 0.0, 0
