"""The body of a request on its way to an upstream, which may take nothing of it for a while only.

aiohttp counts how long an upstream says nothing from when it has the whole request. One that stops
reading would be waited for until the caller leaves, and its body kept for as long.
"""
import asyncio
from asyncio import TimeoutError as Overdue
from collections.abc import AsyncIterator, Coroutine

import aiohttp

from app.guest_gateway.llm.request_body import sliced

# What is written without waiting for the other side.
_AT_ONCE_BYTES = 64 * 1024


class Sending:
    """A body in pieces, of which at least one has to be taken every `silence_s`."""

    def __init__(self, pieces: list[bytes | memoryview], silence_s: float) -> None:
        self._pieces, self._silence_s = pieces, silence_s
        self._due: float | None = None
        self.size_bytes = sum(map(len, pieces))

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        clock = asyncio.get_running_loop().time
        async for piece in sliced(self._pieces):
            self._due = clock() + self._silence_s
            yield piece
        self._due = None

    async def watch(
        self, asking: Coroutine[None, None, aiohttp.ClientResponse]
    ) -> aiohttp.ClientResponse:
        """What `asking`, which sends this body, gives; raises Overdue when nothing is taken any
        more. Unless it returns, the request is over."""
        if self.size_bytes <= _AT_ONCE_BYTES:
            return await asking
        asked = asyncio.ensure_future(asking)
        try:
            while not asked.done():
                left_s = self._left_s()
                if left_s is not None and left_s <= 0:
                    raise Overdue
                # Whether the first piece has been taken shows after a while.
                await asyncio.wait({asked}, timeout=left_s or self._silence_s)
            return asked.result()
        except BaseException:
            if not asked.cancel() and not asked.cancelled() and asked.exception() is None:
                asked.result().close()
            raise

    def _left_s(self) -> float | None:
        """None while nothing is to be taken."""
        return None if self._due is None else self._due - asyncio.get_running_loop().time()
