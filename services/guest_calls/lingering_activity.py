"""Lets the activity of a call linger for a moment, for the next call of this process on the same
sandbox: of calls that follow each other closely only the first writes to the database.

1. A call takes the activity that lingers if that lasts as long as the call may; else it begins one.
2. An activity that no call has taken for LINGER_S is ended by a thread, as of the end of its last
call. Until then it keeps the sandbox from the idle sweep. 3. A process that exits ends what
lingers; what one was killed with expires.
"""
import atexit
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from models.database import connection, now
from models.sandboxes import Sandbox
from services.guest_calls import activity

LINGER_S = 1.0
# So much longer than the call that began it an activity lasts.
_MARGIN_S = 5.0


@dataclass(frozen=True)
class _Lingering:
    """An activity, until when it lasts, and when its last call ended."""

    activity_id: int
    lasts_until_s: float
    since_s: float
    ended_at: datetime


_lock = threading.Lock()
_lingering: defaultdict[str, list[_Lingering]] = defaultdict(list)
_ender: threading.Thread | None = None


@contextmanager
def in_use_lingering(sandbox: Sandbox, *, for_s: float, what: str) -> Iterator[None]:
    """Hold `sandbox`, whose row has just been read, awake while the block runs, as `in_use` does,
    and for a moment more.

    Raises Conflict naming the state, and runs nothing, unless the sandbox is running.
    """
    activity_id, lasts_until_s = _take(sandbox, for_s) or _begin(sandbox, for_s, what)
    try:
        yield
    finally:
        _keep(sandbox.id, _Lingering(activity_id, lasts_until_s, time.monotonic(), now()))


def end_lingering(for_s: float = 0.0) -> None:
    """End what has lingered for `for_s` seconds."""
    before, ended = time.monotonic() - for_s, []
    with _lock:
        for sandbox_id, known in list(_lingering.items()):
            ended += [(sandbox_id, each) for each in known if each.since_s <= before]
            known[:] = [each for each in known if each.since_s > before]
            if not known:
                del _lingering[sandbox_id]
    for sandbox_id, each in ended:
        activity.finish(sandbox_id, each.activity_id, each.ended_at)


def _take(sandbox: Sandbox, for_s: float) -> tuple[int, float] | None:
    """None also for a sandbox that does not run: who begins an activity is told so."""
    needed_s = time.monotonic() + for_s
    with _lock:
        known = _lingering.get(sandbox.id, [])
        found = next((each for each in known if each.lasts_until_s >= needed_s), None)
        if found is None or not activity.is_running(sandbox):
            return None
        known.remove(found)
        return found.activity_id, found.lasts_until_s


def _begin(sandbox: Sandbox, for_s: float, what: str) -> tuple[int, float]:
    lasts_s = for_s + _MARGIN_S
    with connection():
        return activity.begin(sandbox, lasts_s, what), time.monotonic() + lasts_s


def _keep(sandbox_id: str, lingering: _Lingering) -> None:
    global _ender
    with _lock:
        _lingering[sandbox_id].append(lingering)
        if _ender is None or not _ender.is_alive():
            _ender = threading.Thread(target=_end_them, name="activity-ender", daemon=True)
            _ender.start()


def _end_them() -> None:
    """For as long as there are any."""
    global _ender
    while True:
        time.sleep(LINGER_S / 2)
        end_lingering(LINGER_S)
        with _lock:
            if not _lingering:
                _ender = None
                return


atexit.register(end_lingering)
