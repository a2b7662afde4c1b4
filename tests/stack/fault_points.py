"""Arms a fault point (`nodeworker/faults.py`) in the processes of a stack."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bin.stack.running import Stack
from tests.stack.waiting import until


class FaultPoint:
    """Called with a point (and an action, `kill` unless said otherwise) it arms it; the first
    process there acts."""

    def __init__(self, stack: Stack) -> None:
        self._path = Path(stack.site.values["SVC_FAULT_FILE"])
        self._done = self._path.with_name(self._path.name + ".done")

    def __call__(self, point: str, action: str = "kill") -> None:
        self._done.unlink(missing_ok=True)
        # In one step: a process may look at any moment.
        draft = self._path.with_name(self._path.name + ".draft")
        draft.write_text(f"{point} {action}")
        draft.rename(self._path)

    def reached(self) -> bool:
        """Whether a process has come to the armed point."""
        return self._done.exists()

    def has_killed(self) -> bool:
        """Whether it has ended a process."""
        return self.reached() and self._done.read_text().endswith(" kill")

    def disarm(self) -> None:
        """Nothing happens any more."""
        self._path.unlink(missing_ok=True)
        self._done.unlink(missing_ok=True)


@contextmanager
def fault_point(stack: Stack) -> Iterator[FaultPoint]:
    """A fault point of `stack` to arm, disarmed at the end. Whom it killed has started by then, as
    supervisord sees it: who is killed again sooner than that is started later each time."""
    point = FaultPoint(stack)
    try:
        yield point
    finally:
        killed = point.has_killed()
        point.disarm()
        if killed:
            until(lambda: not _starting(stack))


def _starting(stack: Stack) -> list[str]:
    supervisor = stack.supervisor
    return [name for name in supervisor.programs
            if supervisor.state(name) in ("STARTING", "BACKOFF")]
