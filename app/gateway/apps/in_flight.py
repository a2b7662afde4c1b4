"""Says of each sandbox that is to get no request any more when none is in flight here: neither in
this process nor in a worker of the edge (see `services/deploys/drained_sandboxes.py`).

1. A read shows the drain, and that no name leads to the sandbox, or that requests are held. 2.
Every worker has heard of that read. 3. Then what is in flight can only become less.
"""
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.gateway.apps.known import Known
from app.gateway.apps.workers import Workers
from models.database import DatabaseFailed

log = logging.getLogger(__name__)
_LOOK_S, _IDLE_S = 0.02, 5.0


class InFlight:
    """The requests of this process that sandboxes owe an answer."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __contains__(self, sandbox_id: str) -> bool:
        return self._counts[sandbox_id] > 0

    @contextmanager
    def one(self, sandbox_id: str) -> Iterator["Request"]:
        """A request that is in flight until the end of the block, or until it is ended."""
        request = Request(self._counts, sandbox_id)
        try:
            yield request
        finally:
            request.end()


class Request:
    """A request in flight."""

    def __init__(self, counts: Counter[str], sandbox_id: str) -> None:
        self._counts: Counter[str] | None = counts
        self._sandbox_id = sandbox_id
        counts[sandbox_id] += 1

    def end(self) -> None:
        """It is answered, or became a WebSocket; once is enough."""
        if self._counts is not None:
            self._counts[self._sandbox_id] -= 1
            self._counts += Counter()   # forgets zeros
            self._counts = None


async def keep_telling(known: Known, workers: Workers, in_flight: InFlight) -> None:
    """Tell the database of each drain that is over here, until cancelled."""
    since: dict[int, int] = {}
    told: set[int] = set()
    while True:
        drains = known.routes.drains
        reached = {route.sandbox_id for route in known.routes.by_name.values()
                   if not route.is_held}
        waiting = {drain: sandbox for drain, sandbox in drains.items() if sandbox not in reached}
        since = {drain: since.get(drain, known.serial) for drain in waiting}
        told &= waiting.keys()
        for drain, sandbox_id in waiting.items():
            if (drain in told or sandbox_id in in_flight
                    or not workers.are_without(sandbox_id, since[drain])):
                continue
            try:
                await known.tell_drained(drain, sandbox_id)
                told.add(drain)
            except DatabaseFailed as error:
                log.warning("a drain is told later: %s", type(error).__name__)
        await known.change(_LOOK_S if waiting.keys() - told else _IDLE_S)
