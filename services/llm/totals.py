"""What owners and sandboxes used of LLMs, as sums of tallies (decision 19).

The end of a call adds its figures to three sums, in the transaction that ends it; a sweep puts the
parts of each sum together. So a limit or a total reads a handful of rows, whatever was called.
"""
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date, datetime, timezone
from decimal import Decimal

from models import locks
from models.database import connection, database
from models.locks import Lock
from models.usage import ALL_TIME, LlmTally
from services.llm.call_cost import dollars

_KEYS = 2000


@dataclass(frozen=True)
class Figures:
    """What is counted; the columns of a tally. `cost` is in the unit of
    `services.llm.call_cost`."""

    calls: int = 0
    incomplete_calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0

    def less(self, other: "Figures") -> "Figures":
        """How much these are more than `other`."""
        return Figures(*(mine - its for mine, its in zip(astuple(self), astuple(other))))

    @property
    def tokens(self) -> int:
        """All tokens, as limits count them."""
        return (self.input_tokens + self.output_tokens + self.cached_tokens
                + self.cache_write_tokens)

    @property
    def known_cost(self) -> float | None:
        """US dollars of the calls whose price is known; None if that is none of them."""
        return None if self.calls and self.calls == self.unpriced_calls else dollars(self.cost)

    @classmethod
    def of(cls, columns: Iterable[Decimal | int]) -> "Figures":
        """The figures of the columns of a query by SUMS."""
        return cls(*map(int, columns))


_COLUMNS = [field.name for field in fields(Figures)]
# What a query selects for `Figures.of`.
SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in _COLUMNS)
_LIST = ", ".join(_COLUMNS)


def day_of(moment: datetime) -> date:
    """The day (UTC) of an aware moment: limits and tallies count by it."""
    return moment.astimezone(timezone.utc).date()


def add(owner_id: str, sandbox_id: str, model: str, day: date, figures: Figures) -> None:
    """Count `figures`, in the current transaction."""
    keys = [("", day, model), ("", ALL_TIME, "")]
    if sandbox_id:
        keys.append((sandbox_id, day, ""))
    columns = dict(zip(_COLUMNS, astuple(figures)))
    LlmTally.insert_many([
        {"owner_id": owner_id, "sandbox_id": sandbox, "day": when, "model": name, **columns}
        for sandbox, when, name in keys
    ]).execute()


def of_day(owner_id: str, day: date) -> Figures:
    """What an owner used in a day; its calls that have ended."""
    return _sum("owner_id = %s AND sandbox_id = '' AND day = %s", (owner_id, day))


def of_owner(owner_id: str) -> Figures:
    """What an owner ever used."""
    return of_day(owner_id, ALL_TIME)


def of_sandbox(owner_id: str, sandbox_id: str) -> Figures:
    """What a sandbox ever used."""
    return _sum("owner_id = %s AND sandbox_id = %s", (owner_id, sandbox_id))


def sum_up() -> None:
    """Put the parts of each sum together; readers see the one or the other. One process at a
    time."""
    locks.execute_in_batches(Lock.LLM_TALLIES, f"""
    WITH due AS (
        SELECT DISTINCT owner_id, sandbox_id, day, model FROM llm_tallies WHERE NOT is_sum
        LIMIT {_KEYS}
    ),
    gone AS (
        DELETE FROM llm_tallies AS t USING due
        WHERE (t.owner_id, t.sandbox_id, t.day, t.model)
            = (due.owner_id, due.sandbox_id, due.day, due.model)
        RETURNING t.*
    ),
    summed AS (
        INSERT INTO llm_tallies (owner_id, sandbox_id, day, model, {_LIST}, is_sum)
        SELECT owner_id, sandbox_id, day, model,
            {", ".join(f"sum({name})" for name in _COLUMNS)}, true
        FROM gone GROUP BY owner_id, sandbox_id, day, model
    )
    SELECT count(*) FROM due
    """, _KEYS)


def _sum(where: str, values: Sequence[object]) -> Figures:
    with connection():
        row = database.execute_sql(f"SELECT {SUMS} FROM llm_tallies WHERE {where}",
                                   tuple(values)).fetchone()
    return Figures.of(row)
