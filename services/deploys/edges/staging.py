"""Says which files each edge is to have, and whether it has them: before a version goes live all
edges hold it, so that a change of what is served is a change of a link.

An edge that has not been seen for a while is not waited for; it fetches what it lacks before it
serves again.
"""
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import peewee

from models.database import connection, database
from models.deploys import AppHost, Deploy, DeployRun, Edge, StagedVersion
from models.states import OPEN_RUN_STATES, DeployStatus, RunStep
from services.deploys.earlier_versions import prefix_served
from services.deploys.edges.channel import notify
from services.deploys.runs import RunClaim
from services.deploys.version_prefixes import prefix_of

_SEEN_S, _LOOK_S = 10.0, 0.01


@dataclass(frozen=True)
class Version:
    """A version whose files an edge is to have."""

    slug: str
    owner_id: str
    prefix: str


@dataclass(frozen=True)
class App:
    """What an edge serves at an app's address: the prefixes of the live version and of the one
    before it, None if there is none or its time is over."""

    slug: str
    owner_id: str
    live: str
    previous: str | None


def tell() -> None:
    """Tell the edges now."""
    with connection():
        notify()


def list_apps() -> list[App]:
    """Every static app that is live."""
    with connection():
        rows = list(Deploy.select().where((Deploy.status == DeployStatus.LIVE)
                                          & (Deploy.live_static == True)))  # noqa: E712
    return [
        App(row.slug, row.owner_id, prefix_of(row.app_id, row.live_version, row.live_epoch),
            prefix_served(row))
        for row in rows
    ]


def list_hosts() -> dict[str, str]:
    """Slugs of the apps by their host names besides those."""
    with connection():
        return dict(AppHost.select(AppHost.host, Deploy.slug).join(
            Deploy, on=(Deploy.app_id == AppHost.app_id)).tuples())


def list_coming() -> list[Version]:
    """The versions that are to go live as soon as the edges have them."""
    with connection():
        runs = DeployRun.select().where(
            DeployRun.state.in_(OPEN_RUN_STATES) & (DeployRun.step == RunStep.STAGE))
        return [Version(run.slug, run.owner_id,
                        prefix_of(run.app_id, run.version, run.stored_epoch)) for run in runs]


def begin_round() -> datetime:
    """The moment, by the database's clock, as of which an edge now reads what the rows say."""
    with connection():
        moment: datetime = database.execute_sql("SELECT clock_timestamp()").fetchone()[0]
        return moment


def caught_up(edge_id: str, began_at: datetime) -> None:
    """The edge is at work, and serves what the rows said at that moment, as far as it has it."""
    with connection():
        Edge.insert(id=edge_id, heartbeat_at=began_at).on_conflict(
            conflict_target=[Edge.id], update={Edge.heartbeat_at: began_at}).execute()


def wait_until_caught_up(limit_s: float) -> bool:
    """Return True once every edge that is at work serves what the rows say now; False if that takes
    longer than `limit_s`."""
    end, since = time.monotonic() + limit_s, begin_round()
    tell()
    while True:
        with connection():
            behind = Edge.select().where(_is_at_work() & (Edge.heartbeat_at < since)).exists()
        if not behind:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)


def staged(edge_id: str, prefix: str) -> None:
    """The edge has all files of a version."""
    with connection():
        StagedVersion.insert(edge_id=edge_id, prefix=prefix).on_conflict_ignore().execute()


def is_everywhere(claimed: RunClaim) -> bool:
    """True once every edge that is at work has the files of the run; False without any edge."""
    assert claimed.stored_epoch is not None
    return have_all(prefix_of(claimed.app_id, claimed.version, claimed.stored_epoch))


def have_all(prefix: str) -> bool:
    """True if every edge that is at work has the files under a prefix; False without any edge."""
    with connection():
        edges = {edge.id for edge in Edge.select().where(_is_at_work())}
        having = StagedVersion.select().where(StagedVersion.prefix == prefix)
        return bool(edges) and edges <= {row.edge_id for row in having}


def _is_at_work() -> Any:
    seen_after = peewee.SQL("clock_timestamp() - %s * interval '1 second'", [_SEEN_S])
    return Edge.heartbeat_at > seen_after
