"""Deliveries: made of events, claimed by senders, tried on schedule, and written down whatever
happens.

1. `route` makes a delivery for each receiver of a new event; its first attempt is due one wait
   after the event.
2. `claim_due` gives a sender what is due, for the length of a lease. The attempt is counted and in
   the ledger before anything is sent, so there is never one more than the schedule has.
3. `record_results` writes what became of it, and when the next attempt is due
   (`webhook_retries.py`).
4. A sender that died in between: `release_expired` after the lease, or `release_earlier` when it
   is back. The attempt has counted, its outcome is unknown, and the schedule goes on. A receiver
   may therefore get an event twice, and knows it by its id.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import peewee

from models.database import database, now
from models.events import Delivery, DeliveryAttempt, Event
from models.states import AttemptOutcome, DeliveryState
from services.events.webhook_retries import next_due

SENDER_DIED = "the sender died before it had an answer"
_BATCH = 500

# One round trip and one commit for a batch; the three parts stand or fall together.
_CLAIM = """
WITH due AS (
    SELECT id FROM deliveries
    WHERE state = 'pending' AND receiver = %(receiver)s AND next_attempt_at <= %(now)s
    ORDER BY next_attempt_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE deliveries d SET state = 'sending', attempts = d.attempts + 1,
        claimed_by = %(sender)s, lease_until = %(until)s
    FROM due WHERE d.id = due.id RETURNING d.id, d.event_id, d.attempts, d.next_attempt_at
), noted AS (
    INSERT INTO delivery_attempts (delivery_id, number, sender, started_at, outcome)
    SELECT id, attempts, %(sender)s, %(now)s, 'under_way' FROM taken
)
SELECT taken.id, taken.attempts, taken.next_attempt_at, events.id, events.type, events.body
FROM taken JOIN events ON events.id = taken.event_id ORDER BY taken.next_attempt_at
"""

# Batches too: a receiver that answers quickly gives hundreds of results a second.
_RECORD_ATTEMPTS = """
UPDATE delivery_attempts a
SET outcome = v.outcome, duration_ms = v.duration_ms, http_status = v.http_status, reason = v.reason
FROM unnest(%s::bigint[], %s::integer[], %s::text[], %s::float[], %s::integer[], %s::text[])
    AS v (delivery_id, number, outcome, duration_ms, http_status, reason)
WHERE a.delivery_id = v.delivery_id AND a.number = v.number
"""
_RECORD_ENDS = """
UPDATE deliveries d
SET state = v.state, next_attempt_at = COALESCE(v.due, d.next_attempt_at),
    claimed_by = NULL, lease_until = NULL, finished_at = CASE WHEN v.due IS NULL THEN %s END
FROM unnest(%s::bigint[], %s::integer[], %s::text[], %s::timestamptz[])
    AS v (id, number, state, due)
WHERE d.id = v.id AND d.attempts = v.number AND (d.state = 'sending' OR v.state = 'delivered')
"""


@dataclass(frozen=True)
class Claimed:
    """One attempt that its claimer has to make now; `body` are the bytes to sign and send."""

    delivery_id: int
    number: int
    due_at: datetime
    started_at: datetime
    event_id: str
    event_type: str
    body: bytes


@dataclass(frozen=True)
class Result:
    """What became of an attempt; `reason` says why it failed."""

    claimed: Claimed
    delivered: bool
    duration_ms: float
    http_status: int | None = None
    reason: str | None = None


def route(receivers: Sequence[str], first_wait_s: float) -> int:
    """Make the deliveries of new events, none if there is no receiver; returns how many events, at
    most a batch."""
    with database.atomic():
        fresh = list(
            Event.select(Event.id, Event.occurred_at)
            .where(Event.routed_at.is_null())
            .order_by(Event.occurred_at)
            .limit(_BATCH)
            .for_update("FOR UPDATE SKIP LOCKED")
        )
        wait = timedelta(seconds=first_wait_s)
        rows = [
            {"event": event.id, "receiver": name, "next_attempt_at": event.occurred_at + wait}
            for event in fresh
            for name in receivers
        ]
        if fresh:
            Event.update(routed_at=now()).where(
                Event.id.in_([event.id for event in fresh])
            ).execute()
        if rows:
            Delivery.insert_many(rows).execute()
    return len(fresh)


def unrouted_query(moment: Any) -> Any:
    """The events that `route` makes deliveries of, at any moment."""
    return Event.select().where(Event.routed_at.is_null())


def pending_query(moment: Any) -> Any:
    """The deliveries that are due, or will be."""
    return Delivery.select().where(Delivery.state == DeliveryState.PENDING)


def sending_query(moment: Any) -> Any:
    """The deliveries that a sender has, at any moment: it may have died. Apart from those that are
    pending, because each state has an index of its own."""
    return Delivery.select().where(Delivery.state == DeliveryState.SENDING)


def list_due(receivers: Iterable[str]) -> list[str]:
    """Those of `receivers` that have a delivery due."""
    due = (Delivery.state == DeliveryState.PENDING) & (Delivery.next_attempt_at <= now())
    return [
        name for name in receivers
        if Delivery.select().where(due & (Delivery.receiver == name)).exists()
    ]


def claim_due(receiver: str, sender: str, *, limit: int, lease_s: float) -> list[Claimed]:
    """Take up to `limit` due deliveries, the longest due first; each must be attempted and its
    result recorded."""
    present = now()
    values = {
        "receiver": receiver,
        "sender": sender,
        "now": present,
        "until": present + timedelta(seconds=lease_s),
        "limit": limit,
    }
    rows = database.execute_sql(_CLAIM, values).fetchall()
    return [
        Claimed(delivery_id, number, due_at, present, event_id, event_type, body.encode())
        for delivery_id, number, due_at, event_id, event_type, body in rows
    ]


def record_results(results: Sequence[Result], waits_s: Sequence[float]) -> None:
    """Write the results of claimed attempts in one transaction.

    A result that comes after its attempt was given up corrects the ledger, and ends the delivery if
    it was a success.
    """
    attempts = [
        (
            result.claimed.delivery_id,
            result.claimed.number,
            (AttemptOutcome.DELIVERED if result.delivered else AttemptOutcome.FAILED).value,
            result.duration_ms,
            result.http_status,
            result.reason,
        )
        for result in results
    ]
    ends = [(result.claimed.delivery_id, result.claimed.number, *_end(result, waits_s))
            for result in results]
    with database.atomic():
        database.execute_sql(_RECORD_ATTEMPTS, _columns(attempts))
        database.execute_sql(_RECORD_ENDS, [now(), *_columns(ends)])


def _end(result: Result, waits_s: Sequence[float]) -> tuple[str, datetime | None]:
    """The state of the delivery after this result, and when the next attempt is due."""
    if result.delivered:
        return DeliveryState.DELIVERED.value, None
    due = next_due(result.claimed.due_at, result.claimed.number, waits_s)
    return (DeliveryState.PENDING if due else DeliveryState.DROPPED).value, due


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def release_expired(waits_s: Sequence[float]) -> int:
    """Go on with deliveries whose sender let its lease run out; returns how many, at most a
    batch."""
    return _release(Delivery.lease_until < now(), waits_s)


def release_earlier(sender: str, waits_s: Sequence[float]) -> int:
    """Go on at once with what earlier lives of this sender had claimed; `sender` is its name, a
    slash, and something that no other life of it has. Returns how many, at most a batch."""
    name = sender.split("/")[0]
    earlier = (peewee.fn.split_part(Delivery.claimed_by, "/", 1) == name) & (
        Delivery.claimed_by != sender
    )
    return _release(earlier, waits_s)


def _release(which: peewee.Expression, waits_s: Sequence[float]) -> int:
    with database.atomic():
        orphans = list(
            Delivery.select()
            .where((Delivery.state == DeliveryState.SENDING) & which)
            .limit(_BATCH)
            .for_update("FOR UPDATE SKIP LOCKED")
        )
        for orphan in orphans:
            attempt = DeliveryAttempt.get((DeliveryAttempt.delivery == orphan.id)
                                          & (DeliveryAttempt.number == orphan.attempts))
            attempt.outcome, attempt.reason = AttemptOutcome.UNKNOWN, SENDER_DIED
            attempt.save(only=[DeliveryAttempt.outcome, DeliveryAttempt.reason])
            due = next_due(orphan.next_attempt_at, orphan.attempts, waits_s)
            _put_back(orphan, due)
    return len(orphans)


def _put_back(orphan: Delivery, due: datetime | None) -> None:
    values: dict[str, Any] = {"state": DeliveryState.DROPPED, "finished_at": now()}
    if due is not None:
        values = {"state": DeliveryState.PENDING, "next_attempt_at": due}
    Delivery.update(claimed_by=None, lease_until=None,
                    **values).where(Delivery.id == orphan.id).execute()


def drop_unconfigured(receivers: Sequence[str]) -> int:
    """Drop what waits for receivers that are no longer configured; returns how many."""
    stray = (Delivery.state == DeliveryState.PENDING) & Delivery.receiver.not_in(list(receivers))
    return int(
        Delivery.update(state=DeliveryState.DROPPED, finished_at=now()).where(stray).execute())
