"""What an operator is told of the LLM proxy: who uses it, how its upstreams do, what is under
way."""
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from models.database import connection, database, now
from models.usage import ALL_TIME
from services.llm.call_rows import ABANDONED_AFTER_S
from services.llm.totals import SUMS, Figures

_BY_OWNER = f"""
SELECT t.owner_id, coalesce(u.email, t.owner_id), t.day, {SUMS}
FROM llm_tallies t LEFT JOIN users u ON u.id = t.owner_id
WHERE t.sandbox_id = '' AND t.day >= %s AND (%s::text IS NULL OR t.owner_id = %s)
GROUP BY t.owner_id, u.email, t.day ORDER BY t.day DESC, sum(cost) DESC, t.owner_id
"""
_ALL_TIME = f"SELECT {SUMS} FROM llm_tallies WHERE sandbox_id = '' AND day = '{ALL_TIME}'"
_OPEN = """
SELECT count(*), min(started_at), count(*) FILTER (WHERE seen_at < %s)
FROM llm_calls WHERE ended_at IS NULL
"""
_UPSTREAMS = """
SELECT upstream, count(*), count(*) FILTER (WHERE coalesce(status, 599) >= 400),
    count(*) FILTER (WHERE NOT complete),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM first_byte_at - started_at))
FROM llm_calls WHERE ended_at > %s GROUP BY upstream ORDER BY upstream
"""


@dataclass(frozen=True)
class OwnerDay:
    """What an account used in a day (UTC)."""

    owner_id: str
    email: str
    day: date
    figures: Figures


@dataclass(frozen=True)
class UpstreamHour:
    """The calls of an upstream that ended in the last hour; `failed` had a status from 400 on, or
    none. `first_byte_s` is the median."""

    name: str
    calls: int
    failed: int
    incomplete: int
    first_byte_s: float | None


@dataclass(frozen=True)
class State:
    """The proxy at the moment; `abandoned` are open calls that no gateway has in hand."""

    open_calls: int
    oldest: datetime | None
    abandoned: int
    upstreams: list[UpstreamHour]


def by_owner(since: date, owner_id: str | None = None) -> list[OwnerDay]:
    """Each day of each account from `since` on, or of one account; the newest first, and of a day
    the dearest."""
    with connection():
        rows = database.execute_sql(_BY_OWNER, (since, owner_id, owner_id)).fetchall()
    return [OwnerDay(owner, email, day, Figures.of(figures))
            for owner, email, day, *figures in rows]


def all_time() -> Figures:
    """What all accounts ever used."""
    with connection():
        return Figures.of(database.execute_sql(_ALL_TIME).fetchone())


def state() -> State:
    """How the proxy does."""
    present = now()
    with connection():
        stale = present - timedelta(seconds=ABANDONED_AFTER_S)
        count, oldest, abandoned = database.execute_sql(_OPEN, (stale,)).fetchone()
        rows = database.execute_sql(_UPSTREAMS, (present - timedelta(hours=1),)).fetchall()
    return State(count, oldest, abandoned, [UpstreamHour(*row) for row in rows])
