"""Lets the activity of a call linger for a moment, and its connection to the guest, for the next
call of this process on the same sandbox: of calls that follow each other closely only the first
writes to the database and connects.

1. A call takes the activity that lingers if that lasts as long as the call may; else it begins one.
2. An activity that no call has taken for LINGER_S is ended by a thread, as of the end of its last
call. Until then it keeps the sandbox from the idle sweep. 3. A process that exits ends what
lingers; what one was killed with expires. 4. A connection from before an operation on the sandbox,
which may have slept since, is closed, not used. Few linger after many calls at once: a guest has
only so many for all its callers.
"""
import atexit
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from models.database import connection, now
from models.sandboxes import Sandbox
from services.guest_calls import use_while_running
from services.guest_calls.guest import connect
from services.protocols import Deps, Guest

LINGER_S = 1.0
# So much longer than the call that began it an activity lasts.
_MARGIN_S = 5.0
# Connections that linger to one guest.
_CONNECTIONS_MOST = 16


@dataclass
class _Lingering:
    """An activity and until when it lasts; the guest, which may have kept a connection, as it was
    after operation `op_seq`; and when the last call ended."""

    activity_id: int
    lasts_until_s: float
    guest: Guest
    op_seq: int
    since_s: float = field(default_factory=time.monotonic)
    ended_at: datetime = field(default_factory=now)


_lock = threading.Lock()
_lingering: defaultdict[str, list[_Lingering]] = defaultdict(list)
_ender: threading.Thread | None = None


@contextmanager
def in_use_lingering(deps: Deps, sandbox: Sandbox, *, for_s: float, what: str) -> Iterator[Guest]:
    """Hold `sandbox`, whose row has just been read, awake while the block runs, as `in_use` does,
    and for a moment more. Gives its guest, which may keep a connection for as long.

    Raises Conflict naming the state, and runs nothing, unless the sandbox is running.
    """
    lingering = _take(sandbox, for_s)
    if lingering is None:
        lingering = _begin(deps, sandbox, for_s, what)
    elif lingering.op_seq != sandbox.op_seq:
        lingering.guest.close()
        lingering.guest, lingering.op_seq = connect(deps, sandbox), sandbox.op_seq
    try:
        yield lingering.guest
    finally:
        _keep(sandbox.id, lingering)


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
        each.guest.close()
        use_while_running.finish(sandbox_id, each.activity_id, each.ended_at)


def _take(sandbox: Sandbox, for_s: float) -> _Lingering | None:
    """None also for a sandbox that does not run: who begins an activity is told so."""
    needed_s = time.monotonic() + for_s
    with _lock:
        known = _lingering.get(sandbox.id, [])
        found = next((each for each in known if each.lasts_until_s >= needed_s), None)
        if found is None or not use_while_running.is_running(sandbox):
            return None
        known.remove(found)
    return found


def _begin(deps: Deps, sandbox: Sandbox, for_s: float, what: str) -> _Lingering:
    lasts_s = for_s + _MARGIN_S
    with connection():
        activity_id = use_while_running.begin(sandbox, lasts_s, what)
    return _Lingering(activity_id, time.monotonic() + lasts_s, connect(deps, sandbox),
                      sandbox.op_seq)


def _keep(sandbox_id: str, lingering: _Lingering) -> None:
    global _ender
    lingering.since_s, lingering.ended_at = time.monotonic(), now()
    with _lock:
        if len(_lingering[sandbox_id]) >= _CONNECTIONS_MOST:
            lingering.guest.close()
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
