"""Holds the requests of an app while its database moves from one runtime to the next.

Edges keep what comes until the fence is lifted or its time is over, whichever is first, and then
ask again who serves the app. No fence follows on another that still stands: together they might be
longer than anybody holds a request. So a worker that dies inside it costs a wait, and no request.
"""
from datetime import datetime, timedelta
from typing import Any

from models.database import connection, database, now
from models.deploys import Deploy
from services.deploys import drained_sandboxes, runs
from services.deploys.edges.channel import notify
from services.deploys.runs import RunClaim

# nginx and the gateway hold a request for 60 s, counted from when it came: less what it takes to
# tell them of the end.
LONGEST_S = 55.0
# What a move needs beside the start of the app, for requests in flight and to carry the database:
# of SVC_DEPLOY_FENCE_S this part, and so many seconds at most.
_BESIDE_PART, _BESIDE_S = 2 / 3, 20.0
# What is published in the last second of a fence might meet a request that was let go.
_MARGIN_S = 1.0


def length_s(base_s: float, start_s: float) -> float:
    """How long the fence of an app may be that takes up to `start_s` seconds until it accepts
    connections: `base_s`, longer for one that is slow, as far as requests are held for it."""
    beside_s = min(base_s * _BESIDE_PART, _BESIDE_S)
    return max(base_s, min(beside_s + start_s, LONGEST_S))


def begin(claimed: RunClaim, sandbox_id: str, for_s: float, **columns: Any) -> datetime:
    """Hold what is asked of the app from now on, and have the edges say when nothing is in flight
    to the sandbox that serves it; returns until when. `columns` are what the run says of it. Raises
    LeaseLost."""
    until = now() + timedelta(seconds=for_s)
    with connection(), database.atomic():
        runs.lock_app(claimed)
        runs.check_held(claimed)
        if columns:
            runs.note(claimed, **columns)
        Deploy.update(fence_until=until).where(Deploy.slug == claimed.slug).execute()
        drained_sandboxes.ask(sandbox_id, for_s)
        notify()
    return until


def find_left(claimed: RunClaim) -> datetime | None:
    """The end of the fence that an earlier attempt has left, as one whose worker died; None if
    there is none. For who has not begun one yet."""
    with connection():
        until: datetime | None = Deploy.select(Deploy.fence_until).where(
            Deploy.app_id == claimed.app_id).scalar()
    return until


def lift(claimed: RunClaim, sandbox_id: str, until: datetime) -> None:
    """Let go what is held by this very fence: the version before answers it. One that is another's
    stands on, and who waits for the sandbox goes on waiting."""
    with connection(), database.atomic():
        if Deploy.update(fence_until=None).where((Deploy.app_id == claimed.app_id)
                                                 & (Deploy.fence_until == until)).execute():
            drained_sandboxes.clear(sandbox_id)
            notify()


def forget_expired() -> None:
    """Clear the fences whose time is over, as when the worker inside one has died: nobody waits for
    the requests to what is live any more."""
    with connection(), database.atomic():
        ended = list(Deploy.update(fence_until=None).where(_is_over(now()))
                     .returning(Deploy).execute())
        for row in ended:
            drained_sandboxes.clear(row.live_sandbox_id)
        if ended:
            notify()


def due_query(moment: Any) -> Any:
    """The apps whose fence `forget_expired` clears at a moment."""
    return Deploy.select().where(_is_over(moment))


def _is_over(moment: Any) -> Any:
    return Deploy.fence_until <= moment


def stands(row: Deploy, until: datetime) -> bool:
    """True while what was held since this fence began is still held; the row must be locked."""
    return bool(row.fence_until == until
                and now() < until - timedelta(seconds=_MARGIN_S))
