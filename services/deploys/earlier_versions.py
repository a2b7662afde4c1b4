"""Decides which earlier versions of an app are kept, and for how long: N-1 of a static app, to
serve what N lacks (contract, Deploy rule 7), and no other.

1. When N goes live, what was served until then becomes version N-1, for SVC_STATIC_COLLECT_S; its
files in the store are due for removal at the same time. 2. The sweep ends it once that is over. A
version with a process of its own is never served as N-1: it is drained instead.
"""
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from services.deploys import version_prefixes
from services.deploys.edges.channel import notify

# Columns of an app of which only the live version is served.
NONE: dict[str, Any] = dict.fromkeys(("previous_version", "previous_epoch", "collect_previous_at"))


def served_for_s(settings: Settings, row: Deploy) -> float:
    """How long what the app serves now is still served once another version is live."""
    return settings.static_collect_s if row.live_static else 0


def collect(settings: Settings, row: Deploy, run: DeployRun) -> None:
    """Have the files of all versions but the run's removed, `row` as it was before that went live:
    those of what was served by then after their time, those of runs that came to nothing at
    once."""
    mine = version_prefixes.prefix_of(run.app_id, run.version, run.stored_epoch)
    if row.live_version is not None:
        live = version_prefixes.prefix_of(row.app_id, row.live_version, row.live_epoch)
        version_prefixes.collect(DeployPrefix.prefix == live, served_for_s(settings, row))
    version_prefixes.collect((DeployPrefix.app_id == run.app_id) & (DeployPrefix.prefix != mine))


def columns_after(settings: Settings, row: Deploy) -> dict[str, Any]:
    """Columns of the app once what it serves now has become version N-1."""
    if not row.live_static:
        return NONE
    return {"previous_version": row.live_version, "previous_epoch": row.live_epoch,
            "collect_previous_at": now() + timedelta(seconds=served_for_s(settings, row))}


def prefix_served(row: Deploy) -> str | None:
    """The prefix of the app's version N-1; None if there is none or its time is over."""
    if row.collect_previous_at is None or row.previous_epoch is None:
        return None
    return version_prefixes.prefix_of(row.app_id, row.previous_version, row.previous_epoch)


def end_due() -> None:
    """Stop serving version N-1 of the apps whose time for it is over."""
    with connection(), database.atomic():
        ended = Deploy.update(**NONE).where(_is_over(now())).execute()
        if ended:
            notify()


def due_query(moment: Any) -> Any:
    """The apps whose version N-1 `end_due` ends at a moment."""
    return Deploy.select().where(_is_over(moment))


def _is_over(moment: Any) -> Any:
    return Deploy.collect_previous_at <= moment
