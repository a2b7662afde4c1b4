"""Tells whether requests to a sandbox are in flight, so that it is frozen or stopped only when
nobody waits for its answer.

1. Who changes an app so that its requests are held (`fence_until`) or go elsewhere
(`live_sandbox_id`) asks in the same transaction. 2. Each gateway reads both at once, makes its edge
send nothing more to the sandbox, waits for the answers that are due, and says so. It never says so
of a sandbox that requests still go to. 3. A gateway that has not been heard of may send nothing
either: what its edge was told has run out.

After a fence has run out requests go to the sandbox again, whatever was said: who waited must not
rely on it once `fence_until` is over.
"""
from models.database import connection, database
from models.deploys import Drain
from services.deploys.edges.channel import notify

_ASK = """
INSERT INTO drains (sandbox_id, until)
VALUES (%s, clock_timestamp() + %s * interval '1 second')
"""
_IS_DRAINED = """
SELECT NOT EXISTS (
    SELECT 1 FROM gateways g WHERE g.routes_until > clock_timestamp() AND NOT EXISTS (
        SELECT 1 FROM drained_gateways t WHERE t.drain = d.id AND t.gateway_id = g.id))
FROM drains d WHERE d.sandbox_id = %s
"""


def ask(sandbox_id: str, until_s: float) -> None:
    """Ask all edges, in the current transaction, to say when none of their requests to the sandbox
    is in flight any more. Asked again, what was said before counts no longer; after `until_s`
    seconds nobody looks any more."""
    clear(sandbox_id)
    database.execute_sql(_ASK, (sandbox_id, until_s))
    notify()


def is_drained(sandbox_id: str) -> bool:
    """True once every edge that is at work has said that none of its requests to the sandbox is in
    flight; WebSockets do not count. False if nobody asked."""
    with connection():
        row = database.execute_sql(_IS_DRAINED, (sandbox_id,)).fetchone()
        return bool(row and row[0])


def clear(sandbox_id: str) -> None:
    """Nobody waits for the sandbox any more; in the current transaction, if there is one."""
    with connection():
        Drain.delete().where(Drain.sandbox_id == sandbox_id).execute()
