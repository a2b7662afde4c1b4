"""Waits for a sandbox to be up, once for all who want it.

One task for each sandbox looks at it whenever its row has changed, at all ports that are waited for
with one transaction: a sandbox has many, and whoever has many sandboxes is not to take the time of
others' wakes. Callers share a look, and one who goes away does not end it.
"""
import asyncio
from collections.abc import Collection

from app.gateway.rows import Rows
from services.operations import row_changes
from services.previews.lookup import Target
from services.previews.wake import Reach

# How often the row is read without a change.
_SURE_S = 0.5


class _Wake:
    """The ports of a sandbox that are waited for, each with the answer that is owed and the time by
    which it is; `changed` says that a look may find something new."""

    def __init__(self) -> None:
        self.owed: dict[int, tuple[asyncio.Future[Reach], float]] = {}
        self.changed = asyncio.Event()


class Wakes:
    """The sandboxes that are being waited for; each port for `limit_s` seconds at most at a
    time."""

    def __init__(self, rows: Rows, limit_s: float) -> None:
        self._rows = rows
        self._limit_s = limit_s
        self._wakes: dict[str, _Wake] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait_for(self, target: Target) -> Reach:
        """How the sandbox is once nothing is under way with it: UP or GONE, or still COMING when
        its time is over. Raises RateLimited, Unavailable, DatabaseFailed."""
        loop = asyncio.get_running_loop()
        wake = self._wakes.get(target.sandbox_id)
        if wake is None:
            wake = self._wakes[target.sandbox_id] = _Wake()
            task = loop.create_task(self._keep_looking(target.sandbox_id, wake))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if target.guest_port not in wake.owed:
            wake.owed[target.guest_port] = loop.create_future(), loop.time() + self._limit_s
            wake.changed.set()
        return await asyncio.shield(wake.owed[target.guest_port][0])

    async def _keep_looking(self, sandbox_id: str, wake: _Wake) -> None:
        """Look until nobody is owed an answer."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(wake.changed.set)

        try:
            with row_changes.told_of_changes(sandbox_id, tell):
                while wake.owed:
                    wake.changed.clear()
                    await self._look(sandbox_id, wake)
                    if wake.owed:
                        await _wait(wake.changed)
        except Exception as error:  # nobody is to wait in vain
            _fail(wake, list(wake.owed), error)
        finally:
            del self._wakes[sandbox_id]

    async def _look(self, sandbox_id: str, wake: _Wake) -> None:
        asked = list(wake.owed)
        try:
            found = await self._rows.bring_up(sandbox_id, asked)
        except Exception as error:
            _fail(wake, asked, error)
            return
        present = asyncio.get_running_loop().time()
        for port, reach in found.items():
            answer, end = wake.owed[port]
            if reach is not Reach.COMING or present > end:
                del wake.owed[port]
                answer.set_result(reach)


def _fail(wake: _Wake, ports: Collection[int], error: Exception) -> None:
    """Everybody who asked for these ports hears of the error."""
    for port in ports:
        answer, _ = wake.owed.pop(port)
        answer.set_exception(error)
        answer.exception()  # heard of, even if everybody has gone


async def _wait(changed: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(changed.wait(), _SURE_S)
    except asyncio.TimeoutError:
        pass
