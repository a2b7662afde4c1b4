"""An owner's totals, from tallies that are written with every change and summed up from time to
time.

A tally is a row that is added, never a counter that everybody waits for; what is read is the sum of
a handful of rows, however many sandboxes the owner has or has had.
"""
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from models import locks
from models.database import database
from models.locks import Lock
from models.states import SandboxStatus

_GROUPS = 1000

_SUM_UP = {
    "usage_tallies": ("owner_id, month", "wall_clock_ms, cost", "sum(wall_clock_ms), sum(cost)"),
    "sandbox_tallies": ("owner_id, kind, status", "sandboxes", "sum(sandboxes)"),
}


@dataclass(frozen=True)
class Used:
    """Running time in milliseconds and its cost (`services.metering.prices`)."""

    wall_clock_ms: int
    cost: Decimal


def used(owner_id: str, month: date | None = None) -> Used:
    """What all sandboxes of an owner have used, the stopped ones too; in one calendar month if
    given."""
    when, values = ("", (owner_id,)) if month is None else (" AND month = %s", (owner_id, month))
    query = (
        "SELECT coalesce(sum(wall_clock_ms), 0), coalesce(sum(cost), 0) FROM usage_tallies WHERE"
        " owner_id = %s"
    )
    wall_clock_ms, cost = database.execute_sql(query + when, values).fetchone()
    return Used(int(wall_clock_ms), cost)


def count_sandboxes(owner_id: str, status: str | None, kind: str | None) -> int:
    """How many sandboxes an owner has: of one status or (None) not stopped, of one kind or (None)
    any."""
    wanted = "status = %s" if status else "status <> %s"
    values = [owner_id, status or SandboxStatus.STOPPED.value]
    if kind:
        wanted, values = f"{wanted} AND kind = %s", [*values, kind]
    query = (
        f"SELECT coalesce(sum(sandboxes), 0) FROM sandbox_tallies WHERE owner_id = %s AND {wanted}"
    )
    return int(database.execute_sql(query, values).fetchone()[0])


def sum_up() -> None:
    """Replace the tallies of each owner by their sums; readers see the one or the other. One
    process at a time."""
    for table in _SUM_UP:
        locks.execute_in_batches(Lock.TALLIES, _statement(table), _GROUPS)


def _statement(table: str) -> str:
    keys, columns, sums = _SUM_UP[table]
    return f"""
    WITH due AS (SELECT DISTINCT owner_id FROM {table} WHERE NOT is_sum LIMIT {_GROUPS}),
    gone AS (
        DELETE FROM {table} WHERE owner_id IN (SELECT owner_id FROM due) RETURNING {keys}, {columns}
    ),
    summed AS (
        INSERT INTO {table} ({keys}, {columns}, is_sum)
        SELECT {keys}, {sums}, true FROM gone GROUP BY {keys}
    )
    SELECT count(*) FROM due
    """
