"""How beat works through its schedule."""
from typing import Any

from celery.beat import PersistentScheduler, ScheduleEntry

from tasks.due_sweeps import is_due
from tasks.wiring import get_deps


class Scheduler(PersistentScheduler):
    """Celery's, but it sleeps until a tick is due, and sends it only if its sweep would find
    something. Celery's own wakes 10 ms before and asks again and again until then, which at several
    ticks a second is most of what beat costs."""

    def setup_schedule(self) -> None:
        """Once, before the first tick."""
        get_deps()
        super().setup_schedule()

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a tick that is due."""
        if is_due(entry.task):
            super().apply_entry(entry, producer)

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """When to wake, in seconds from now."""
        return n
