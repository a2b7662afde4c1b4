"""How beat works through its schedule."""
import logging
from datetime import timedelta
from typing import Any

from celery.beat import PersistentScheduler, ScheduleEntry

from tasks.due_sweeps import is_due
from tasks.wiring import get_deps

log = logging.getLogger(__name__)
# Of a clock that is slewed no tick is ever so far ahead.
_AHEAD = timedelta(seconds=1)


class Scheduler(PersistentScheduler):
    """Celery's, but it sleeps until a tick is due, and sends it only if its sweep would find
    something. Celery's own wakes 10 ms before and asks again and again until then, which at several
    ticks a second is most of what beat costs."""

    def setup_schedule(self) -> None:
        """Once, before the first tick."""
        get_deps()
        super().setup_schedule()

    def tick(self, *arguments: Any, **more: Any) -> float:
        """Send what is due; returns for how many seconds nothing is. Celery's own goes by the clock
        alone: after that was set back it would send nothing until the old time comes again."""
        for entry in self.schedule.values():
            present = entry.default_now()
            if entry.last_run_at > present + _AHEAD:
                log.warning("the clock was set back; %s counts from now on", entry.name)
                entry.last_run_at, self._heap = present, None
        return float(super().tick(*arguments, **more))

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a tick that is due."""
        if is_due(entry.task):
            super().apply_entry(entry, producer)

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """When to wake, in seconds from now."""
        return n
