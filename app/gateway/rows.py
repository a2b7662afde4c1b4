"""Asks the database for the gateway, off its event loop, and with a bounded number of statements
however many ask.

Look-ups that come while a statement is under way share the next one. A host that there is not is
remembered for a second at most: the edge asks twice, once for the address, once with the request.
What was looked up is noted as used once a second, all of it with one statement that waits for no
row; what it leaves out is noted a second later.
"""
import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from models.database import DatabaseFailed
from services.previews import keep_awake, lookup, wake
from services.previews.lookup import Target
from services.previews.wake import Reach
from services.protocols import Deps

log = logging.getLogger(__name__)
_LABEL = re.compile(r"[a-z2-7]{26}-[1-9][0-9]{0,4}")
_BATCH, _WAKERS, _NOTE_S = 500, 6, 1.0


class Rows:
    """What the gateway asks of the database; all calls are of one event loop."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        # Apart, so that a look-up waits for no wake and no note.
        self._reading = ThreadPoolExecutor(1, "rows")
        self._noting = ThreadPoolExecutor(1, "notes")
        self._waking = ThreadPoolExecutor(_WAKERS, "wakes")
        self._asked: dict[str, asyncio.Future[Target | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._used: set[str] = set()
        self._unknown: set[str] = set()
        self._looked_up = asyncio.Event()

    async def find(self, label: str) -> Target | None:
        """What a preview host leads to, None if there is no such host; raises DatabaseFailed."""
        if label in self._unknown or not _LABEL.fullmatch(label):
            return None
        answer = self._asked.get(label)
        if answer is None:
            answer = self._asked[label] = asyncio.get_running_loop().create_future()
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(answer)

    async def _ask(self) -> None:
        while self._asked:
            labels = list(self._asked)[:_BATCH]
            answers = {label: self._asked.pop(label) for label in labels}
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._reading, lookup.find_targets, labels)
            except Exception as error:  # everybody who asked has to hear of it
                for answer in answers.values():
                    answer.set_exception(error)
                    answer.exception()  # heard of, even if nobody asks any more
            else:
                self._unknown |= answers.keys() - found.keys()
                self._looked_up.set()
                for label, answer in answers.items():
                    answer.set_result(found.get(label))
        self._asking = None

    async def bring_up(self, sandbox_id: str, guest_ports: Collection[int]) -> dict[int, Reach]:
        """See `services.previews.wake.bring_up_ports`."""
        return await asyncio.get_running_loop().run_in_executor(
            self._waking, wake.bring_up_ports, self._deps, sandbox_id, guest_ports)

    def note_use(self, target: Target) -> None:
        """Somebody was just told where the sandbox is."""
        self.note_used((target.sandbox_id,))

    def note_used(self, sandbox_ids: Iterable[str]) -> None:
        """The same of sandboxes whose requests did not come through here."""
        self._used.update(sandbox_ids)
        self._looked_up.set()

    async def note(self, call: Callable[[], Collection[str]]) -> None:
        """Have a call note what is used; the sandboxes that it gives were left out. Raises what it
        raises."""
        if left_out := await asyncio.get_running_loop().run_in_executor(self._noting, call):
            self.note_used(left_out)

    async def keep_noting(self) -> None:
        """Write what is used, every second in which something is looked up, until cancelled; and
        forget who was unknown."""
        while True:
            await self._looked_up.wait()
            await asyncio.sleep(_NOTE_S)
            self._looked_up.clear()
            self._unknown.clear()
            used, self._used = self._used, set()
            if not used:
                continue
            try:
                await self.note(partial(keep_awake.looked_up, used))
            except DatabaseFailed as error:
                self.note_used(used)
                log.warning("what is used is noted later: %s", type(error).__name__)
