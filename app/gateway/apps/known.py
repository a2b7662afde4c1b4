"""Holds where the names of served apps lead, as new as the database has told, and reads it again
after each change and every second, or every two while there is no such app.

Who asks for what is newer than his question waits for a read that begins after it; many share one.
What was read counts for VALID_S seconds: without a database nobody is sent anywhere. An app that
has become static is served by its sandbox for a moment more, until this host's files are linked.
"""
import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from app.gateway.pages import CROWD
from app.gateway.reach_port import Refused
from models.database import DatabaseFailed
from services.deploys.edges import routes
from services.deploys.edges.routes import Kind, Route, Routes

log = logging.getLogger(__name__)
Result = TypeVar("Result")
VALID_S = 5.0
_ROUND_S, _EMPTY_ROUND_S, _AGAIN_S, _LINKED_S = 1.0, 2.0, 0.2, 1.0
# Names without a route that wait for their question, of which one takes about a millisecond.
_STRANGERS = 200


class Known:
    """The routes of this gateway; all calls are of one event loop."""

    def __init__(self, gateway_id: str) -> None:
        self._id = gateway_id
        # Apart from each other and from look-ups of previews: none holds up another.
        self._reading = ThreadPoolExecutor(1, "routes")
        self._asking = ThreadPoolExecutor(1, "kinds")
        self._asked = asyncio.Event()
        self._changed = asyncio.Event()
        self._begun = self._ended = 0
        self._problem: DatabaseFailed | None = None
        self._unknown: set[str] = set()
        self._strangers: dict[str, asyncio.Task[Kind | None]] = {}
        # Apps that have become static, and until when their routes stay.
        self._leaving: dict[str, float] = {}
        self.routes = Routes({}, {})
        # By the clock of this host, which the edge's workers share.
        self.valid_until = 0.0
        # The number of the read that the routes are of.
        self.serial = 0

    def ring(self) -> None:
        """Something has changed; may be called by any thread of the loop's process."""
        self._asked.set()

    @property
    def is_valid(self) -> bool:
        """False if the routes are too old to go by."""
        return time.time() < self.valid_until

    @property
    def round_s(self) -> float:
        """How long to wait for a change."""
        return _ROUND_S if self.routes.by_name else _EMPTY_ROUND_S

    def find(self, name: str) -> Route | None:
        """Where a name leads by what is known now."""
        return self.routes.by_name.get(name)

    async def refresh(self) -> None:
        """Read again, from now on; raises DatabaseFailed."""
        wanted = self._begun + 1
        self._asked.set()
        while self._ended < wanted:
            await self.change(_ROUND_S)
        if self._problem is not None and not self.is_valid:
            raise self._problem

    async def change(self, limit_s: float) -> None:
        """Return after the next read, or after so many seconds."""
        try:
            await asyncio.wait_for(self._changed.wait(), max(limit_s, 0))
        except asyncio.TimeoutError:
            pass

    async def find_kind(self, name: str) -> Kind | None:
        """How an app is served that has no route; one that there is not is remembered until the
        next read. Raises Refused while too many other names wait, and DatabaseFailed."""
        if name in self._unknown:
            return None
        asked = self._strangers.get(name)
        if asked is None:
            if len(self._strangers) >= _STRANGERS:
                raise Refused(CROWD)
            asked = self._strangers[name] = asyncio.create_task(self._ask(name))
            asked.add_done_callback(lambda _: self._strangers.pop(name))
        return await asyncio.shield(asked)

    async def _ask(self, name: str) -> Kind | None:
        kind = await _call(self._asking, routes.find_kind, name)
        if kind is None:
            self._unknown.add(name)
        return kind

    async def keep_reading(self) -> None:
        """Read after each change, and when a round is over, until cancelled."""
        while True:
            try:
                await asyncio.wait_for(self._asked.wait(), self.round_s)
            except asyncio.TimeoutError:
                pass
            self._asked.clear()
            self._unknown.clear()
            self._begun += 1
            try:
                await self._read()
            except DatabaseFailed as error:
                if self._problem is None:
                    log.warning("where apps are is read later: %s", type(error).__name__)
                self._problem = error
                self._asked.set()
                await asyncio.sleep(_AGAIN_S)
            self._ended = self._begun
            waiting, self._changed = self._changed, asyncio.Event()
            waiting.set()

    async def _read(self) -> None:
        begun_at = time.time()
        found = await _call(self._reading, routes.take, self._id, VALID_S)
        for name in self.routes.by_name.keys() - found.by_name.keys():
            if await self._stays(name):
                found.by_name[name] = self.routes.by_name[name]
        self.routes = found
        self.valid_until = begun_at + VALID_S
        self.serial = self._begun
        self._problem = None

    async def _stays(self, name: str) -> bool:
        present = time.monotonic()
        if name not in self._leaving:
            # Not behind the strangers: meanwhile no route counts longer than VALID_S.
            is_static = await _call(self._reading, routes.find_kind, name) is Kind.STATIC
            self._leaving[name] = present + (_LINKED_S if is_static else 0)
        if present < self._leaving[name]:
            return True
        del self._leaving[name]
        return False

    async def tell_drained(self, drain: int, sandbox_id: str) -> None:
        """See `services.deploys.edges.routes.drained`; raises DatabaseFailed."""
        await _call(self._reading, routes.drained, self._id, drain, sandbox_id)


async def _call(thread: ThreadPoolExecutor, call: Callable[..., Result], *arguments: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(thread, call, *arguments)
