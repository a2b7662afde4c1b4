"""Says whether an owner may make a call: the kill switch, and what a day allows.

What is under way counts with what it has reserved, so that calls made at the same time do not all
see the same room. A limit is reached by what was used; the call that reaches it is finished, so an
owner goes beyond a limit by about one call at most. Days are UTC.
"""
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from models.database import connection, database, now
from services.errors import Forbidden, InsufficientCredit, RateLimited
from services.llm import totals
from services.llm.call_cost import dollars, find_price
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import Limits, LlmConfig, Target
from services.llm.switches import Switches

SWITCHES = Switches()
# When calls that are under way keep others out, it may be over soon.
_BUSY_S = 5
_UNDER_WAY = """
SELECT count(*), coalesce(sum(greatest(reserved_tokens, estimated_input + output_tokens)), 0),
    coalesce(sum(reserved_cost), 0)
FROM llm_calls WHERE owner_id = %s AND ended_at IS NULL
"""


@dataclass(frozen=True)
class Spent:
    """An owner's day: what is limited, as used by calls that have ended, or reserved by others."""

    requests: int
    tokens: int
    cost: int


def admit(config: LlmConfig, caller: LlmCaller) -> None:
    """Returns if the caller may make calls now; `call_rows.begin` looks again under the lock of
    the owner.

    Raises Unavailable by the kill switch, RateLimited (requests, tokens) and InsufficientCredit
    (money) with `retry_after_s`.
    """
    SWITCHES.check(caller.owner_id)
    check_limits(limits_of(config, caller), caller.owner_id)


def limits_of(config: LlmConfig, caller: LlmCaller) -> Limits:
    """The limits that hold for a caller: its owner's, else its plan's, else the default."""
    table = config.limits
    for name in (caller.owner_id, caller.owner_email):
        if name in table.owners:
            return table.owners[name]
    return table.plans.get(caller.plan, table.default)


def with_known_cost(config: LlmConfig, caller: LlmCaller, targets: list[Target]) -> list[Target]:
    """Those of the targets that the caller may use: with a limit in money, those that have a price.
    What costs nobody knows how much would never reach it. Raises Forbidden if none is left."""
    if limits_of(config, caller).cost is None:
        return targets
    priced = [target for target in targets
              if find_price(config.prices, target.upstream.name, target.model) is not None]
    if not priced:
        raise Forbidden("The operator limits what this account may spend on LLMs in a day, and has"
                        " given this model no price. Use another, or ask the operator for a price.")
    return priced


def check_limits(limits: Limits, owner_id: str) -> None:
    """Raises RateLimited or InsufficientCredit if a limit is reached."""
    if limits.is_empty:
        return
    present = now()
    used, under_way = _spent(owner_id, present)
    for word, kind, limit, ended, open_now in (
        ("calls", RateLimited, limits.requests, used.requests, under_way.requests),
        ("tokens", RateLimited, limits.tokens, used.tokens, under_way.tokens),
        ("money", InsufficientCredit, limits.cost, used.cost, under_way.cost),
    ):
        if limit is None or ended + open_now < limit:
            continue
        shown = f"{dollars(limit):.2f} US dollars" if word == "money" else f"{limit:,} {word}"
        if ended < limit:
            raise RateLimited(
                f"What is under way may use up the {shown} of the day; try again when it has"
                " ended.", retry_after_s=_BUSY_S)
        raise kind(f"The {shown} that this account may use of LLMs in a day are used up; a new day"
                   " begins at midnight (UTC).", retry_after_s=_until_midnight_s(present))


def _spent(owner_id: str, present: datetime) -> tuple[Spent, Spent]:
    """Of today: by calls that have ended, and by those under way."""
    with connection():
        ended = totals.of_day(owner_id, totals.day_of(present))
        row = database.execute_sql(_UNDER_WAY, (owner_id,)).fetchone()
    return Spent(ended.calls, ended.tokens, ended.cost), Spent(*map(int, row))


def _until_midnight_s(present: datetime) -> int:
    day = present.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((day + timedelta(days=1) - present).total_seconds()) + 1
