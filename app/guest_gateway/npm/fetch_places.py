"""Says how many fetches from the registry may be under way, of one guest and in all.

A fetch holds its place until it ends, also when the guest that began it has left: else a guest that
hangs up again and again would have any number of them under way.
"""
import asyncio
from collections import defaultdict
from functools import partial

from app.guest_gateway.npm.allowance import Allowances
from services.errors import Unavailable

FETCHES, OF_ONE_GUEST = 48, 24
_PATIENCE_S, _RETRY_AFTER_S = 10.0, 5


class FetchPlaces:
    """The places of all guests; made in a running event loop."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances
        self._of_all = asyncio.Semaphore(FETCHES)
        self._of_guests: defaultdict[str, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, OF_ONE_GUEST))

    async def take(self, source: str) -> None:
        """Return once `source` has a place. It waits for its own fetches as long as it likes, for
        those of others a while: then it raises Unavailable. Raises as `Allowances.wait`."""
        own = self._of_guests[source]
        await own.acquire()
        try:
            await self._allowances.wait(source)
            await asyncio.wait_for(self._of_all.acquire(), _PATIENCE_S)
        except asyncio.TimeoutError:
            own.release()
            raise Unavailable("Too much is being fetched from the registry; try again in a moment.",
                              retry_after_s=_RETRY_AFTER_S) from None
        except BaseException:
            own.release()
            raise

    def give_back(self, source: str) -> None:
        """End what `take` began."""
        self._of_all.release()
        self._of_guests[source].release()
