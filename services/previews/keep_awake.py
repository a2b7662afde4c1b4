"""Keeps sandboxes awake whose previews are used: looked up, or with a connection open.

Who notes the uses of many tenants waits for no row: an owner can have his locked again and again,
and a statement that waits holds the rows that it has already. It is told what was left out.
"""
from collections.abc import Collection

from guest.agent.protocol import AGENT_PORT
from models.database import UNLOCKED_ROWS, connection, database
from models.states import SandboxStatus

# At least this long: connections are counted every few seconds only.
LEAST_S = 15
_RUNNING = f"status = '{SandboxStatus.RUNNING.value}'"
_TOUCH = f"""
UPDATE sandboxes SET last_active_at = now(),
    idle_at = GREATEST(idle_at, now() + GREATEST(idle_timeout_s, {LEAST_S}) * interval '1 second')
"""
# Gives those of `used` that it has left out.
_TOUCH_FREE = f"""
free AS (
    SELECT id FROM sandboxes WHERE id IN (SELECT id FROM used) AND {_RUNNING} {UNLOCKED_ROWS}
),
touched AS ({_TOUCH} WHERE id IN (SELECT id FROM free))
SELECT id FROM used EXCEPT SELECT id FROM free
"""
_LOOKED_UP = f"""
WITH used AS (SELECT id FROM sandboxes WHERE id = ANY(%s) AND {_RUNNING}), {_TOUCH_FREE}
"""
_CONNECTED = f"""
WITH used AS (
    SELECT s.id FROM sandboxes s JOIN port_bindings b ON b.sandbox_id = s.id
    JOIN nodes n ON n.id = b.node_id
    JOIN unnest(%s::text[], %s::integer[]) AS open(address, port)
        ON open.address = n.address AND open.port = b.host_port
    WHERE b.guest_port <> {AGENT_PORT} AND s.{_RUNNING}
), {_TOUCH_FREE}
"""


def touch(sandbox_id: str) -> None:
    """Somebody is about to use the sandbox; waits for its row."""
    with connection():
        database.execute_sql(f"{_TOUCH} WHERE id = %s AND {_RUNNING}", (sandbox_id,))


def looked_up(sandbox_ids: Collection[str]) -> set[str]:
    """Somebody was just told where these sandboxes are; returns those whose rows are locked."""
    return _left_out(_LOOKED_UP, list(sandbox_ids))


def connected(open_to: Collection[tuple[str, int]]) -> set[str]:
    """Connections are open to these addresses and ports of nodes, those of agents do not count;
    returns the sandboxes whose rows are locked."""
    return _left_out(_CONNECTED, [address for address, _ in open_to], [port for _, port in open_to])


def _left_out(statement: str, *values: list[str] | list[int]) -> set[str]:
    with connection():
        return {sandbox_id for sandbox_id, in database.execute_sql(statement, values).fetchall()}
