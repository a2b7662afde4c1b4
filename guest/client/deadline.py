"""A point in time by which a call must have ended, whatever number of steps it takes."""
import time

from guest.client.errors import AgentTimeout


class Deadline:
    """Counts down from `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds left, at least a millisecond; raises AgentTimeout when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise AgentTimeout("the guest agent did not answer in time")
        return max(left, 0.001)

    def moved(self, size: int) -> None:
        """So many bytes of a stream have come or gone; here that means nothing."""

    def content_is_over(self) -> None:
        """The last byte of a stream has gone; here that means nothing."""
