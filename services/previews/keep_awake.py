"""Keeps sandboxes awake whose previews are used: looked up, or with a connection open."""
from collections.abc import Collection

from guest.agent.protocol import AGENT_PORT
from models.database import connection, database
from models.states import SandboxStatus

# At least this long: connections are counted every few seconds only.
LEAST_S = 15
_TOUCHED = f"""
UPDATE sandboxes SET last_active_at = now(),
    idle_at = GREATEST(idle_at, now() + GREATEST(idle_timeout_s, {LEAST_S}) * interval '1 second')
"""
_LOOKED_UP = f"""
{_TOUCHED} WHERE id = ANY(%s) AND status = '{SandboxStatus.RUNNING.value}'
"""
_CONNECTED = f"""
{_TOUCHED} FROM port_bindings b JOIN nodes n ON n.id = b.node_id
    JOIN unnest(%s::text[], %s::integer[]) AS open(address, port)
        ON open.address = n.address AND open.port = b.host_port
WHERE b.sandbox_id = sandboxes.id AND b.guest_port <> {AGENT_PORT}
    AND sandboxes.status = '{SandboxStatus.RUNNING.value}'
"""


def looked_up(sandbox_ids: Collection[str]) -> None:
    """Somebody was just told where these sandboxes are."""
    with connection():
        database.execute_sql(_LOOKED_UP, (list(sandbox_ids),))


def connected(open_to: Collection[tuple[str, int]]) -> int:
    """Connections are open to these addresses and ports of nodes, those of agents do not count;
    returns how many sandboxes that keeps awake."""
    addresses, ports = [address for address, _ in open_to], [port for _, port in open_to]
    with connection():
        touched = database.execute_sql(_CONNECTED, (addresses, ports))
        return int(touched.rowcount)
