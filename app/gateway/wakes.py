"""Waits for a sandbox to be up, once for all who want it.

One task looks at the sandbox whenever its row has changed. Callers share it, and a caller who goes
away does not end it.
"""
import asyncio
from collections.abc import Callable

from app.gateway.rows import Rows
from services.operations import row_changes
from services.previews.lookup import Target
from services.previews.wake import Reach

# How often it is asked whether a row has changed, which costs nothing, and how often it is read
# without that.
_LOOK_S, _SURE_S = 0.01, 0.5


class Wakes:
    """The sandboxes that are being waited for; each for `limit_s` seconds at most at a time."""

    def __init__(self, rows: Rows, limit_s: float) -> None:
        self._rows = rows
        self._limit_s = limit_s
        self._tasks: dict[tuple[str, int], asyncio.Task[Reach]] = {}

    async def wait_for(self, target: Target) -> Reach:
        """How the sandbox is once nothing is under way with it: UP or GONE, or still COMING when
        its time is over. Raises RateLimited, Unavailable, DatabaseFailed."""
        key = (target.sandbox_id, target.guest_port)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._bring_up(target))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: tuple[str, int], task: asyncio.Task[Reach]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # heard of, even if everybody has gone

    async def _bring_up(self, target: Target) -> Reach:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limit_s
        with row_changes.changes(target.sandbox_id) as changed:
            while True:
                changed()
                reach = await self._rows.bring_up(target)
                if reach is not Reach.COMING or loop.time() > end:
                    return reach
                await _next_change(changed)


async def _next_change(changed: Callable[[], bool]) -> None:
    sure_at = asyncio.get_running_loop().time() + _SURE_S
    while not changed() and asyncio.get_running_loop().time() < sure_at:
        await asyncio.sleep(_LOOK_S)
