"""How much each owner may have fetched from the registry: so many bytes at once, and more as time
goes by. What is kept already costs nothing."""
import asyncio
import time

from services.errors import RateLimited

BYTES_MOST, BYTES_PER_S = 4 << 30, 8 << 20
# What a fetch costs as it begins, one of something that is not there as well.
LEAST_BYTES = 32 << 10
_PATIENCE_S = 20.0
_OWNERS = 1000


class Allowances:
    """The allowances of all owners."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    async def wait(self, owner: str) -> None:
        """Return once `owner` may have something fetched; raises RateLimited if that is not
        soon."""
        wait_s = -self._now(owner) / BYTES_PER_S
        if wait_s > _PATIENCE_S:
            raise RateLimited("Too much is fetched from the registry.", retry_after_s=int(wait_s))
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def spend(self, owner: str, spent_bytes: int) -> None:
        """Count what is fetched; an owner may come to owe some."""
        self._left[owner] = self._now(owner) - spent_bytes, time.monotonic()
        if len(self._left) > _OWNERS:
            self._left = {each: self._left[each] for each in self._left
                          if self._now(each) < BYTES_MOST}

    def _now(self, owner: str) -> float:
        left, at = self._left.get(owner, (float(BYTES_MOST), 0.0))
        return min(float(BYTES_MOST), left + (time.monotonic() - at) * BYTES_PER_S)
