"""Says under which prefixes the object store holds versions of apps, and which of them are to go.

1. A run writes the row of its prefix, under its claim, before it stores the first object: whatever
becomes of it, the prefix is known. 2. Its epoch is in the name, so a worker that lost its lease
never writes into what another's run publishes. 3. A prefix with a due time is removed then, and its
row after it; not before the key of the guest that replicates to it is gone, which has an end of its
own. 4. A worker that stores on without its claim, and is killed before it says so, may leave
objects without a row: they get one, to be removed, when the store is swept.
"""
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import peewee

from models.database import UNLOCKED_ROWS, connection, database, now
from models.deploys import DeployPrefix, DeployRun, RelayKey, StagedVersion
from services.deploys import runs
from services.deploys.runs import RunClaim
from services.operations.claims import LeaseLost

APPS = "apps"
_DATABASE = "db/"
_NAME = re.compile(rf"{APPS}/([^/]+)/v(\d{{1,9}})-\d+/", re.ASCII)
# Given out again after a minute at first: so long the removal of many objects may take.
_BATCH, _AGAIN_S, _LONGEST_S = 20, 60.0, 3600.0


def prefix_of(app_id: str, version: int, epoch: int) -> str:
    """The prefix of a version as the run of that epoch stores it."""
    return f"{APPS}/{app_id}/v{version}-{epoch}/"


def list_key(prefix: str) -> str:
    """The object that lists the files of a version, stored last."""
    return f"{prefix}files.json"


def file_key(prefix: str, path: str) -> str:
    """The object of one file of a version."""
    return f"{prefix}files/{path}"


def database_prefix(prefix: str) -> str:
    """Where the database of a version is replicated to."""
    return f"{prefix}{_DATABASE}"


def keep(app_id: str, version: int, epoch: int) -> str:
    """Write down that objects are about to be stored for a run, and return their prefix."""
    prefix = prefix_of(app_id, version, epoch)
    DeployPrefix.insert(prefix=prefix, app_id=app_id, version=version,
                        created_at=now()).on_conflict_ignore().execute()
    return prefix


def collect(which: Any, after_s: float = 0.0) -> None:
    """Have the prefixes of the condition `which` removed, `after_s` seconds from now. One that has
    its time already keeps it."""
    due = now() + timedelta(seconds=after_s)
    DeployPrefix.update(due_at=due).where(which & DeployPrefix.due_at.is_null()).execute()


def collect_all(app_id: str) -> None:
    """Have everything removed that an app has stored, now, version N-1 too."""
    DeployPrefix.update(due_at=now()).where(
        (DeployPrefix.app_id == app_id) & (DeployPrefix.attempts == 0)).execute()


def begin(claimed: RunClaim) -> str:
    """As `keep`, for a run that stores files; raises LeaseLost, also once its app was deleted, and
    then nothing is written."""
    with connection(), database.atomic():
        runs.check_held(claimed)
        return keep(claimed.app_id, claimed.version, claimed.epoch)


def discard_if_lost(claimed: RunClaim) -> None:
    """Nothing more is stored under a claim: if it counts no longer, have removed what was, even if
    the prefix had been removed before. What a later claim of the run goes on with stays."""
    with connection(), database.atomic():
        try:
            runs.check_held(claimed)
        except LeaseLost:
            if DeployRun.get_by_id(claimed.id).stored_epoch != claimed.epoch:
                collect(DeployPrefix.prefix == keep(
                    claimed.app_id, claimed.version, claimed.epoch))


def list_unknown(prefixes: Sequence[str]) -> list[str]:
    """Those that have the name of a version's prefix and no row. Ask after they were seen in the
    store: a row comes before its objects and goes after them."""
    with connection():
        known = {row.prefix for row in
                 DeployPrefix.select().where(DeployPrefix.prefix.in_(prefixes))}
    return [each for each in prefixes if _NAME.fullmatch(each) and each not in known]


def collect_unknown(prefix: str) -> None:
    """Have a prefix removed that has no row."""
    named = _NAME.fullmatch(prefix)
    assert named is not None
    with connection():
        DeployPrefix.insert(prefix=prefix, app_id=named[1], version=int(named[2]),
                            created_at=now(), due_at=now()).on_conflict_ignore().execute()


def cancel_removal(prefix: str) -> bool:
    """Keep a prefix that was to be removed; False if its removal may have begun."""
    return bool(DeployPrefix.update(due_at=None).where(
        (DeployPrefix.prefix == prefix) & (DeployPrefix.attempts == 0)).execute())


def take_due() -> list[str]:
    """Prefixes to remove now. One that is not removed is given out again, later each time."""
    with connection(), database.atomic():
        due = due_query(now()).order_by(DeployPrefix.due_at).limit(_BATCH)
        taken = list(due.for_update(UNLOCKED_ROWS))
        for row in taken:
            pause_s = min(_AGAIN_S * 2 ** min(row.attempts, 10), _LONGEST_S)
            DeployPrefix.update(attempts=DeployPrefix.attempts + 1,
                                due_at=now() + timedelta(seconds=pause_s)).where(
                DeployPrefix.prefix == row.prefix).execute()
    return [row.prefix for row in taken]


def due_query(moment: Any) -> Any:
    """Those that `take_due` gives out at a moment."""
    written_to = RelayKey.select().where(
        RelayKey.prefix == DeployPrefix.prefix.concat(_DATABASE))
    return DeployPrefix.select().where(
        (DeployPrefix.due_at <= moment) & ~peewee.fn.EXISTS(written_to))


def removed(prefix: str) -> None:
    """The store holds nothing under it any more."""
    with connection():
        StagedVersion.delete().where(StagedVersion.prefix == prefix).execute()
        DeployPrefix.delete().where(DeployPrefix.prefix == prefix).execute()
