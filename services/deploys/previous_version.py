"""Says how long version N-1 of a static app is served where N lacks a file (contract, Deploy
rule 7).

1. When N goes live, what was served until then becomes version N-1, for SVC_STATIC_COLLECT_S; its
files in the store are due for removal at the same time. 2. The sweep ends it once that is over. A
version with a process of its own is never served as N-1: it is drained instead.
"""
from datetime import timedelta
from typing import Any

from config.settings import Settings
from models.database import connection, database, now
from models.deploys import Deploy
from services.deploys.edges.channel import notify
from services.deploys.stored_versions import prefix_of

# Columns of an app of which only the live version is served.
NONE: dict[str, Any] = dict.fromkeys(("previous_version", "previous_epoch", "collect_previous_at"))


def served_for_s(settings: Settings, row: Deploy) -> float:
    """How long what the app serves now is still served once another version is live."""
    return settings.static_collect_s if row.live_static else 0


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
    return prefix_of(row.app_id, row.previous_version, row.previous_epoch)


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
