"""Says where requests for served apps go, by name: a slug, or a host name of the app's own.

A gateway takes routes together with the right to go by them for a while. Drains are read before the
routes, so routes are at least as new as what is asked about them.
"""
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

from models.database import connection, database
from models.states import DeployStatus
from services.deploys.apps.process_facts import APP_PORT
from services.operations import row_changes

# How long requests are still held when a fence is over: what was published in its last moment
# counts, and nothing that the sandbox before is told until then.
_FENCE_MARGIN_S = 2
_TAKE = """
INSERT INTO gateways (id, routes_until)
VALUES (%s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (id) DO UPDATE SET routes_until = EXCLUDED.routes_until
"""
_DRAINS = "SELECT id, sandbox_id FROM drains WHERE until > clock_timestamp()"
_ROUTES = f"""
SELECT d.slug, ARRAY(SELECT h.host FROM app_hosts h WHERE h.app_id = d.app_id), d.owner_id,
    COALESCE(d.fence_until + interval '{_FENCE_MARGIN_S} s' > clock_timestamp(), false),
    s.id, s.status, s.task, s.op_seq, n.address, b.host_port
FROM deploys d JOIN sandboxes s ON s.id = d.live_sandbox_id
LEFT JOIN port_bindings b ON b.sandbox_id = s.id AND b.guest_port = {APP_PORT}
LEFT JOIN nodes n ON n.id = s.node_id
WHERE d.status = '{DeployStatus.LIVE.value}' AND NOT d.live_static
"""
_IS_STATIC = f"""
SELECT d.live_static FROM deploys d
WHERE d.status = '{DeployStatus.LIVE.value}'
    AND (d.slug = %s OR d.app_id = (SELECT h.app_id FROM app_hosts h WHERE h.host = %s))
"""
_DRAINED = """
INSERT INTO drained_gateways (drain, gateway_id)
SELECT id, %s FROM drains WHERE id = %s ON CONFLICT DO NOTHING RETURNING drain
"""


class Kind(Enum):
    """How an app is served."""

    STATIC = "static"
    SERVED = "served"


@dataclass(frozen=True)
class Route:
    """The sandbox that serves an app, as its rows are; `is_held` while requests have to wait."""

    owner_id: str
    is_held: bool
    sandbox_id: str
    status: str
    task: str | None
    op_seq: int
    address: str | None
    host_port: int | None


@dataclass(frozen=True)
class Routes:
    """Where all names lead, and the open drains: id -> sandbox."""

    by_name: dict[str, Route]
    drains: dict[int, str]


def take(gateway_id: str, valid_s: float) -> Routes:
    """The routes of all served apps, by which the gateway's edge may go for `valid_s` seconds from
    before this call."""
    with connection():
        database.execute_sql(_TAKE, (gateway_id, valid_s))
        drains = dict(database.execute_sql(_DRAINS).fetchall())
        rows = database.execute_sql(_ROUTES).fetchall()
    return Routes({name: route for row in rows for name, route in _named(*row)}, drains)


def _named(slug: str, hosts: Collection[str], *columns: Any) -> list[tuple[str, Route]]:
    route = Route(*columns)
    return [(name, route) for name in (slug, *hosts)]


def find_kind(name: str) -> Kind | None:
    """How the app of that name is served; None if there is none, or none of it is live."""
    with connection():
        row = database.execute_sql(_IS_STATIC, (name, name)).fetchone()
    return None if row is None else Kind.STATIC if row[0] else Kind.SERVED


def drained(gateway_id: str, drain: int, sandbox_id: str) -> None:
    """None of the gateway's requests to the sandbox is in flight."""
    with connection(), database.atomic():
        if database.execute_sql(_DRAINED, (gateway_id, drain)).fetchone():
            row_changes.notify(sandbox_id)
