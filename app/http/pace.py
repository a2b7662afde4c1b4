"""How slowly a client may send or take something: what is slower holds what others wait for."""
import time
from asyncio import wait_for
from collections.abc import Awaitable
from typing import TypeVar

SLOWEST_BYTES_PER_S = 8 * 1024
_Result = TypeVar("_Result")


class Pace:
    """The time of a client, however it divides what it sends or takes: `silence_s`, and a second
    for every SLOWEST_BYTES_PER_S that have moved. What others take between its steps does not
    count."""

    def __init__(self, silence_s: float) -> None:
        self._left_s = silence_s

    async def wait(self, step: Awaitable[_Result]) -> _Result:
        """Wait for the client; raises asyncio.TimeoutError when its time is over."""
        begun = time.monotonic()
        try:
            return await wait_for(step, max(self._left_s, 0.0))
        finally:
            self._left_s -= time.monotonic() - begun

    def moved(self, size_bytes: int) -> None:
        """So much has come, or gone."""
        self._left_s += size_bytes / SLOWEST_BYTES_PER_S
