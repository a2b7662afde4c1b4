"""Asks the database for the guest gateway, off its event loop."""
import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")
_THREADS = 8


class Rows:
    """A few threads; what is asked of them waits its turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "rows")

    async def ask(self, call: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """What a quick call gives that asks the database; raises what it raises. The call goes on
        when its caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, partial(call, *arguments, **options))
