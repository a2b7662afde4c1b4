"""Says how many fetches from the registry may be under way, of one guest, of one owner and in all.

A fetch holds its place until it ends, also when the guest that began it has left: else a guest that
hangs up again and again would have any number of them under way.
"""
import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from app.guest_gateway.npm.allowance import Allowances
from services.errors import Unavailable

# A guest may have all of its owner's: its limit has the guests of an owner take turns, however many
# fetches one of them wants.
FETCHES, OF_ONE_OWNER, OF_ONE_GUEST = 48, 24, 24
_PATIENCE_S, _RETRY_AFTER_S = 10.0, 5
# Weak, so that only those are kept that somebody holds or waits for.
_Semaphores = WeakValueDictionary[str, asyncio.Semaphore]


class FetchPlaces:
    """The places of all guests; made in a running event loop."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances
        self._of_all = asyncio.Semaphore(FETCHES)
        self._of_owners, self._of_guests = _Semaphores(), _Semaphores()

    async def take(self, source: str, owner: str) -> Callable[[], None]:
        """Return once the guest at `source`, which is of `owner`, has a place; what is returned
        gives that back. It waits for fetches of its owner as long as it likes, for those of others
        a while: then it raises Unavailable. Raises as `Allowances.wait`."""
        held: list[asyncio.Semaphore] = []

        def give_back() -> None:
            for each in held:
                each.release()

        try:
            for own in (self._of_guests.setdefault(source, asyncio.Semaphore(OF_ONE_GUEST)),
                        self._of_owners.setdefault(owner, asyncio.Semaphore(OF_ONE_OWNER))):
                await own.acquire()
                held.append(own)
            await self._allowances.wait(owner)
            await asyncio.wait_for(self._of_all.acquire(), _PATIENCE_S)
            held.append(self._of_all)
        except asyncio.TimeoutError:
            give_back()
            raise Unavailable("Too much is being fetched from the registry; try again in a moment.",
                              retry_after_s=_RETRY_AFTER_S) from None
        except BaseException:
            give_back()
            raise
        return give_back
