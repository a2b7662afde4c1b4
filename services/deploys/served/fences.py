"""Holds the requests of an app while its database moves from one runtime to the next.

Edges keep what comes until the fence is lifted or its time is over, whichever is first, and then
ask again who serves the app. So a worker that dies inside it costs a wait, and no request.
"""
from datetime import datetime, timedelta
from typing import Any

from models.database import connection, database, now
from models.deploys import Deploy
from services.deploys import drained_sandboxes, runs
from services.deploys.edges.channel import notify
from services.deploys.projects.manifest import BadProject
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
    """How long the fence of an app has to be that takes `start_s` seconds until it accepts
    connections: `base_s`, longer for one that is slow. Raises BadProject for one whose requests
    nobody would hold for so long."""
    beside_s = min(base_s * _BESIDE_PART, _BESIDE_S)
    most_s = max(base_s, LONGEST_S)
    if beside_s + start_s > most_s:
        raise BadProject(f"The app takes {start_s:.0f} s until it accepts connections. While its"
                         f" database moves to the new version requests are held for at most"
                         f" {most_s:.0f} s, of which its start may take {most_s - beside_s:.0f} s.")
    return max(base_s, beside_s + start_s)


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


def lift(claimed: RunClaim, sandbox_id: str, until: datetime) -> None:
    """Let go what is held by this very fence: the version before answers it."""
    with connection(), database.atomic():
        Deploy.update(fence_until=None).where(
            (Deploy.app_id == claimed.app_id) & (Deploy.fence_until == until)).execute()
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
