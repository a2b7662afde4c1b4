"""What an account is told of its LLM calls: by day and model, newest first."""
from dataclasses import dataclass
from datetime import date

from models.database import connection, database, now
from models.usage import ALL_TIME
from services.errors import InvalidRequest
from services.llm.totals import SUMS, Figures, day_of

# Without a range, so many days until today.
DAYS = 30
_WANTED = f"""
FROM llm_tallies WHERE owner_id = %s AND sandbox_id = '' AND day BETWEEN %s AND %s
    AND day <> '{ALL_TIME}'
"""
_PAGE = f"""
SELECT day, model, {SUMS} {_WANTED} GROUP BY day, model
ORDER BY day DESC, model LIMIT %s OFFSET %s
"""
_TOTAL = f"""
SELECT count(DISTINCT (day, model)), {SUMS} {_WANTED}
"""


@dataclass(frozen=True)
class DayOfModel:
    """What an account used of a model in a day (UTC)."""

    day: date
    model: str
    figures: Figures


@dataclass(frozen=True)
class UsagePage:
    """One page; `total` counts the entries of the range, `used` sums all of them up."""

    items: list[DayOfModel]
    total: int
    limit: int
    offset: int
    used: Figures


def list_days(owner_id: str, *, limit: int, offset: int, since: date | None = None,
              until: date | None = None) -> UsagePage:
    """A page of the days from `since` to `until`, both included; raises InvalidRequest for a range
    that ends before it begins."""
    until = until or max(day_of(now()), since or date.min)
    since = since or date.fromordinal(max(1, until.toordinal() - DAYS + 1))
    if since > until:
        raise InvalidRequest("from: must not be after to")
    wanted = (owner_id, since, until)
    with connection():
        rows = database.execute_sql(_PAGE, (*wanted, limit, offset)).fetchall()
        total, *sums = database.execute_sql(_TOTAL, wanted).fetchone()
    items = [DayOfModel(day, model, Figures.of(figures)) for day, model, *figures in rows]
    return UsagePage(items, total, limit, offset, Figures.of(sums))
