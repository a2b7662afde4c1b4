"""Keeps a sandbox awake while calls use it: each call is an activity from its start to its end, or
takes over that of the one before (`lingering_activity.py`).

The start is one statement that also checks the status under the row lock, so a call and the idle
sweep cannot both win.
"""
import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from models.database import DatabaseUnavailable, connection, database, now
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind, OperationState, SandboxStatus
from services.errors import Conflict
from services.operations.transitions import describe
from services.operations.usable_during import USABLE_DURING

log = logging.getLogger(__name__)

# Twice in every call: one statement each, a transaction of its own, whose loss in a crash of the
# server is harmless, so it does not wait for the disk (the setting counts at the commit and ends
# with it).
_RELAXED = "relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
_BEGIN = f"""
WITH {_RELAXED},
touched AS (
    UPDATE sandboxes SET last_active_at = %(present)s, idle_at = %(idle_at)s FROM relaxed
    WHERE id = %(sandbox_id)s AND status = '{SandboxStatus.RUNNING.value}'
      AND (task IS NULL OR task IN ({", ".join(f"'{kind.value}'" for kind in USABLE_DURING)}))
    RETURNING id
)
INSERT INTO activities (id, sandbox_id, expires_at)
SELECT %(activity_id)s, id, %(expires_at)s FROM touched RETURNING id
"""

# It may be written down later than it came to pass: the row may have been used since, or have
# another timeout, or be asleep.
_FINISH = f"""
WITH {_RELAXED},
ended AS (
    DELETE FROM activities WHERE id = %(activity_id)s AND sandbox_id = %(sandbox_id)s
)
UPDATE sandboxes SET last_active_at = GREATEST(last_active_at, %(ended_at)s),
    idle_at = CASE WHEN idle_at IS NOT NULL THEN
        GREATEST(idle_at, %(ended_at)s + idle_timeout_s * interval '1 second') END
FROM relaxed WHERE id = %(sandbox_id)s
"""

# An activity that is gone is made again: it may have expired while the database was away. A row of
# a sandbox that somebody has locked is left out: that does not make it idle, the activity does not.
_RENEW = f"""
WITH {_RELAXED},
held AS (
    SELECT * FROM unnest(%(activity_ids)s, %(sandbox_ids)s::text[]) AS held (id, sandbox_id)
),
renewed AS (
    INSERT INTO activities (id, sandbox_id, expires_at)
    SELECT id, sandbox_id, %(expires_at)s FROM held
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
    WHERE activities.sandbox_id = excluded.sandbox_id
),
free AS (
    SELECT id FROM sandboxes WHERE id IN (SELECT sandbox_id FROM held)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sandboxes SET last_active_at = %(present)s,
    idle_at = %(present)s + idle_timeout_s * interval '1 second'
FROM relaxed WHERE id IN (SELECT id FROM free)
"""


def require_running(sandbox: Sandbox, what: str) -> None:
    """Raise Conflict naming the state unless the row, as it was read, is that of a running
    sandbox."""
    if not is_running(sandbox):
        raise _not_running(sandbox, what)


def is_running(sandbox: Sandbox) -> bool:
    """Whether calls may use the sandbox, by the row as it was read."""
    return sandbox.status == SandboxStatus.RUNNING and sandbox.task in (None, *USABLE_DURING)


@contextmanager
def in_use(sandbox: Sandbox, *, for_s: float, what: str) -> Iterator[int]:
    """Hold `sandbox` awake while the block runs, `for_s` seconds at most (should this process die
    in between). Gives the number of the activity, for `renew`.

    Raises Conflict naming the state, and runs nothing, unless the sandbox is running.
    """
    with connection():
        activity_id = begin(sandbox, for_s, what)
    try:
        yield activity_id
    finally:
        finish(sandbox.id, activity_id, now())


def renew(activities: Mapping[int, str], *, for_s: float) -> None:
    """Let activities whose end nobody knows hold their sandboxes awake for another `for_s` seconds
    from now, as calls that have just begun would. Has the id of the sandbox of each activity."""
    present = now()
    values = {"activity_ids": list(activities), "sandbox_ids": list(activities.values()),
              "present": present, "expires_at": present + timedelta(seconds=for_s)}
    with connection():
        database.execute_sql(_RENEW, values)


def begin(sandbox: Sandbox, for_s: float, what: str) -> int:
    """Begin an activity, and restart the idle clock; returns its number. Raises Conflict."""
    present = now()
    values = {
        # Not the database's: after a crash it may give a number again that is still in use.
        "activity_id": secrets.randbits(63),
        "sandbox_id": sandbox.id,
        "present": present,
        "idle_at": present + timedelta(seconds=sandbox.idle_timeout_s),
        "expires_at": present + timedelta(seconds=for_s),
    }
    begun = database.execute_sql(_BEGIN, values).fetchone()
    if begun is not None:
        return int(begun[0])
    raise _not_running(Sandbox.get_by_id(sandbox.id), what)


def _not_running(sandbox: Sandbox, what: str) -> Conflict:
    return Conflict(
        f"The sandbox is {describe(sandbox.status, sandbox.task)}; {what} needs it to be running.")


def finish(sandbox_id: str, activity_id: int, ended_at: datetime) -> None:
    """End an activity as of `ended_at`. The database being away now must not turn what was done
    into an error: it ends by itself."""
    values = {"sandbox_id": sandbox_id, "ended_at": ended_at, "activity_id": activity_id}
    try:
        with connection():
            database.execute_sql(_FINISH, values)
    except DatabaseUnavailable as error:
        log.warning("an activity was not ended (%s); it expires",
                    type(error).__name__, extra={"sandbox": sandbox_id})


def still_running(sandbox: Sandbox) -> bool:
    """False once the sandbox was put to sleep or stopped since `sandbox` was read, even if it runs
    again by now."""
    slept = (
        (Operation.sandbox_id == sandbox.id)
        & (Operation.op_seq > sandbox.op_seq)
        & (Operation.kind == OperationKind.HIBERNATE)
        & (Operation.state == OperationState.SUCCEEDED)
    )
    with connection():
        return not Operation.select().where(slept).exists() and (
            Sandbox.select()
            .where(
                (Sandbox.id == sandbox.id)
                & (Sandbox.status == SandboxStatus.RUNNING)
                & (Sandbox.task.is_null() | Sandbox.task.in_(USABLE_DURING))
            )
            .exists()
        )


def forget_expired() -> None:
    """Remove the activities of processes that died before they could end them."""
    with connection():
        Activity.delete().where(Activity.expires_at < now()).execute()
