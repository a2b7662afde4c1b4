"""The row of each call: begun before the upstream is asked, ended once, with what it used.

1. `begin` counts the call against its owner's limits and writes the row, under a lock of the owner.
2. The gateway reports every few seconds which calls it has in hand (`report_progress`). 3. `finish`
writes the end and the tallies in one transaction; a second end changes nothing. 4. Calls that
nobody reports are ended by a sweep, with an estimate; should their gateway live after all, its own
`finish` takes the estimate's place. No row holds a prompt or a text.

What if the gateway dies? Before 1: no call was made. After it: 4. What if the database is away? The
call cannot begin; one that is under way goes on, and its end waits for the database.
"""
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from models.database import (
    ROW_LOCK,
    UNLOCKED_ROWS,
    connection,
    database,
    now,
    relaxed_transaction,
    when_database_answers,
)
from models.locks import LockClass, take_for_transaction
from models.usage import LlmCall
from services.llm import allowed_calls, totals
from services.llm.call_cost import Price, Usage, cost_of, find_price
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import LlmConfig, Protocol, Target
from services.llm.totals import Figures

log = logging.getLogger(__name__)
REPORT_EVERY_S = 5.0
# Whoever has not been reported for this long is in nobody's hand.
ABANDONED_AFTER_S = 60.0
# What a token is on average, where nobody counts them.
BYTES_PER_TOKEN = 4
# A body of images is no text: of no body more than this is reserved or estimated.
_INPUT_MOST = 200_000
_BATCH = 500
# The model of calls whose names callers may have made up, as no upstream answered them: else each
# name that an upstream refuses, or is not given the time to refuse, would have a tally of its own
# for ever.
OTHER = "other"


@dataclass(frozen=True)
class NewCall:
    """A call that is about to be made. `gateway` names the process, the same after a restart of it;
    `max_output_tokens` is what the body allows, if it says."""

    gateway: str
    protocol: Protocol
    model_asked: str
    target: Target
    body_bytes: int
    max_output_tokens: int | None = None
    is_stream: bool = False

    @property
    def estimated_input(self) -> int:
        """Tokens of its body, by its size."""
        return min(self.body_bytes // BYTES_PER_TOKEN, _INPUT_MOST)

    def reserved_output(self, config: LlmConfig) -> int:
        """Tokens that its answer may have until it is known how many it has."""
        most = config.reserve_output_tokens
        return min(self.max_output_tokens or most, most)

    def unheard_output(self, config: LlmConfig) -> int:
        """Tokens that its answer counts as if nothing of it is heard: one that is no stream is not
        begun to be sent before all of it is made, so who leaves it may have had it all made."""
        return 0 if self.is_stream else self.reserved_output(config)


@dataclass(frozen=True)
class Progress:
    """What has come of a call until now; `output_tokens` may be an estimate."""

    call_id: int
    output_tokens: int = 0
    first_byte_at: datetime | None = None


@dataclass(frozen=True)
class Ending:
    """How a call ended: with the answer of `target`, whose `status` is None if it gave none.
    `complete` says that `usage` is the upstream's own count; else it is an estimate."""

    target: Target
    status: int | None
    usage: Usage = field(default_factory=Usage)
    complete: bool = True
    first_byte_at: datetime | None = None

    @property
    def was_used(self) -> bool:
        """Whether an upstream answered, and that took tokens."""
        return self.status is not None and self.status < 300 and self.usage.total > 0


def begin(config: LlmConfig, caller: LlmCaller, call: NewCall) -> int:
    """Count a call and write its row; returns its id. Raises as `allowed_calls.admit`."""
    limits = allowed_calls.limits_of(config, caller)
    allowed_calls.SWITCHES.check(caller.owner_id)
    price = find_price(config.prices, call.target.upstream.name, call.target.model)
    reserved = Usage(input=call.estimated_input, output=call.reserved_output(config))
    with connection(), relaxed_transaction():
        if not limits.is_empty:
            take_for_transaction(LockClass.LLM_OWNER, caller.owner_id)
            allowed_calls.check_limits(limits, caller.owner_id)
        # Not a number of the database's: it may give one again that a crash has made it forget, and
        # then this call would end another's.
        row = LlmCall.create(
            id=secrets.randbits(63),
            sandbox_id=caller.sandbox_id or "", owner_id=caller.owner_id, gateway=call.gateway,
            protocol=call.protocol.value, upstream=call.target.upstream.name,
            model_asked=call.model_asked, model_used=call.target.model,
            price=price and price.to_json(), reserved_tokens=reserved.total,
            reserved_cost=cost_of(price, reserved) or 0, estimated_input=call.estimated_input,
            output_tokens=call.unheard_output(config))
    return int(row.id)


_PROGRESS = """
UPDATE llm_calls AS kept SET seen_at = now(), output_tokens = new.output_tokens,
    first_byte_at = coalesce(kept.first_byte_at, new.first_byte_at)
FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[])
    AS new (id, output_tokens, first_byte_at)
WHERE kept.id = new.id AND kept.ended_at IS NULL
"""


def report_progress(calls: Sequence[Progress]) -> None:
    """Say which calls are in hand, and what has come of each; to be called every REPORT_EVERY_S
    with all of them."""
    if not calls:
        return
    columns = zip(*((call.call_id, call.output_tokens, call.first_byte_at) for call in calls))
    with connection(), relaxed_transaction():
        database.execute_sql(_PROGRESS, tuple(map(list, columns)))


def finish(config: LlmConfig, call_id: int, ending: Ending) -> bool:
    """Write the end of a call and count it; waits for a database that is away. False if it was
    ended before, which changes nothing."""
    target = ending.target
    price = find_price(config.prices, target.upstream.name, target.model)
    columns: dict[str, Any] = {
        "upstream": target.upstream.name, "model_used": target.model,
        "price": price and price.to_json(), "status": ending.status, "complete": ending.complete,
        "swept": False,
    }
    if ending.first_byte_at is not None:
        columns["first_byte_at"] = ending.first_byte_at

    def write() -> bool:
        with database.atomic():
            row = LlmCall.select().where(LlmCall.id == call_id).for_update(ROW_LOCK).first()
            if row is None or (row.ended_at is not None and not row.swept):
                return False
            is_named = ending.was_used or config.knows(target)
            _end(row, ending.usage, price, columns, target.model if is_named else OTHER)
            return True

    return when_database_answers(write)


def close_abandoned() -> int:
    """End calls that nobody has in hand, with an estimate; returns how many, a batch at most."""
    return _close(LlmCall.seen_at < now() - timedelta(seconds=ABANDONED_AFTER_S))


def close_left(gateway: str, before: datetime) -> None:
    """End all calls of `gateway` that began before `before`, when it did itself, with an
    estimate."""
    while _close((LlmCall.gateway == gateway) & (LlmCall.started_at < before)) == _BATCH:
        pass


def _close(abandoned: Any) -> int:
    with connection(), database.atomic():
        rows = list(LlmCall.select().where(LlmCall.ended_at.is_null() & abandoned)
                    .order_by(LlmCall.id).limit(_BATCH).for_update(UNLOCKED_ROWS))
        for row in rows:
            price = Price(**row.price) if row.price else None
            estimate = Usage(input=row.estimated_input, output=row.output_tokens)
            _end(row, estimate, price, {"complete": False, "swept": True}, _swept_as(row))
    if rows:
        log.warning("ended %d calls that their gateway did not end, by estimate", len(rows))
    return len(rows)


def forget_old(days: int) -> int:
    """Delete the rows of calls that ended more than `days` days ago; the tallies stay. Returns how
    many; 0 days keeps them all."""
    if days <= 0:
        return 0
    old = (LlmCall.select(LlmCall.id)
           .where(LlmCall.ended_at < now() - timedelta(days=days)).limit(_BATCH * 10))
    with connection():
        return int(LlmCall.delete().where(LlmCall.id.in_(old)).execute())


def _end(row: LlmCall, usage: Usage, price: Price | None, columns: dict[str, Any],
         counted_as: str) -> None:
    """Write the end of a locked row, and count what that adds to what was counted of it; the model
    is `counted_as`."""
    before = _counted(row) if row.ended_at is not None else Figures()
    cost = cost_of(price, usage)
    values = {
        "ended_at": now(), "input_tokens": usage.input, "output_tokens": usage.output,
        "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning, "cost": cost, **columns,
    }
    ended_before, model_before = row.ended_at, _swept_as(row)
    for name, value in values.items():
        setattr(row, name, value)
    row.save(only=list(values))
    if ended_before is not None:
        totals.add(row.owner_id, row.sandbox_id, model_before, totals.day_of(ended_before),
                   Figures().less(before))
    totals.add(row.owner_id, row.sandbox_id, counted_as, totals.day_of(row.ended_at),
               _counted(row))


def _swept_as(row: LlmCall) -> str:
    """The model that a row is counted under when it is swept, where no configuration says which
    names are the operator's."""
    return OTHER if row.first_byte_at is None else str(row.model_used)


def _counted(row: LlmCall) -> Figures:
    return Figures(1, int(not row.complete), int(row.cost is None), row.input_tokens,
                   row.output_tokens, row.cached_tokens, row.cache_write_tokens,
                   row.reasoning_tokens, int(row.cost or 0))
