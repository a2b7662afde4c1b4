"""What an operator sees of events and their deliveries, and can have sent again."""
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import peewee

from models.database import connection, database, now
from models.events import Delivery, DeliveryAttempt, Event
from models.states import DeliveryState
from services.errors import InvalidRequest, NotFound
from services.events import record
from services.events.types import Trial

_BATCH = 500


@dataclass(frozen=True)
class Filter:
    """Which events: conditions that are set must all hold. `state` is that of any of an event's
    deliveries."""

    type: str | None = None
    owner_id: str | None = None
    subject: str | None = None
    receiver: str | None = None
    state: DeliveryState | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class History:
    """One event with all its deliveries, oldest first, each with its attempts."""

    event: Event
    deliveries: list[tuple[Delivery, list[DeliveryAttempt]]]


def list_events(wanted: Filter, limit: int) -> list[History]:
    """The newest events that match, newest first."""
    with connection():
        found = list(_matching(wanted).order_by(Event.occurred_at.desc(), Event.id).limit(limit))
        return [_history(event) for event in found]


def get_event(event_id: str) -> History:
    """One event; raises NotFound."""
    with connection():
        event = Event.get_or_none(Event.id == event_id)
        if event is None:
            raise NotFound(f"There is no event {event_id}.")
        return _history(event)


def _matching(wanted: Filter) -> peewee.ModelSelect:
    query = Event.select()
    conditions: list[Any] = [
        column == value
        for column, value in (
            (Event.type, wanted.type), (Event.owner_id, wanted.owner_id),
            (Event.subject, wanted.subject),
        )
        if value is not None
    ]
    if wanted.since is not None:
        conditions.append(Event.occurred_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(Event.occurred_at < wanted.until)
    if wanted.state is not None or wanted.receiver is not None:
        told = Delivery.select().where(Delivery.event == Event.id)
        if wanted.state is not None:
            told = told.where(Delivery.state == wanted.state)
        if wanted.receiver is not None:
            told = told.where(Delivery.receiver == wanted.receiver)
        conditions.append(peewee.fn.EXISTS(told))
    return query.where(*conditions) if conditions else query


def _history(event: Event) -> History:
    rows = Delivery.select().where(Delivery.event == event.id).order_by(Delivery.id)
    return History(event, [(row, _attempts(row)) for row in rows])


def _attempts(delivery: Delivery) -> list[DeliveryAttempt]:
    query = DeliveryAttempt.select().where(DeliveryAttempt.delivery == delivery.id)
    return list(query.order_by(DeliveryAttempt.number))


def redeliver(event_id: str, receivers: Sequence[str], first_wait_s: float) -> int:
    """Send one event again to each of `receivers`, on a schedule of its own; returns how many
    deliveries were made.

    Same id, same bytes, new timestamp and signature. A receiver whose delivery is still open gets
    no second one.
    """
    with connection(), database.atomic():
        if not Event.select().where(Event.id == event_id).exists():
            raise NotFound(f"There is no event {event_id}.")
        return _send_again([(event_id, name) for name in receivers], first_wait_s)


def redeliver_range(wanted: Filter, receivers: Sequence[str], first_wait_s: float, *,
                    dry_run: bool = False) -> int:
    """The same for all events that match; only to those of `receivers` whose own last delivery has
    `wanted.state`."""
    if wanted.since is None or wanted.until is None:
        raise InvalidRequest("A range needs its beginning and its end.")
    made, after = 0, ""
    with connection():
        while True:
            page = list(_matching(wanted).where(Event.id > after).order_by(Event.id).limit(_BATCH))
            if not page:
                return made
            after = page[-1].id
            with database.atomic():
                to_send = _list_to_send([event.id for event in page], receivers, wanted.state)
                made += len(to_send) if dry_run else _send_again(to_send, first_wait_s)


def _list_to_send(event_ids: list[str], receivers: Sequence[str],
                  state: DeliveryState | None) -> list[tuple[str, str]]:
    last: dict[tuple[str, str], str] = {}
    for row in Delivery.select().where(Delivery.event.in_(event_ids)).order_by(Delivery.id):
        last[row.event_id, row.receiver] = row.state
    return [
        (event_id, name)
        for event_id in event_ids
        for name in receivers
        if state is None or last.get((event_id, name)) == state
    ]


def _send_again(to_send: list[tuple[str, str]], first_wait_s: float) -> int:
    unfinished = Delivery.state.in_((DeliveryState.PENDING, DeliveryState.SENDING))
    ids = list({event_id for event_id, _ in to_send})
    busy = {
        (row.event_id, row.receiver)
        for row in Delivery.select().where(Delivery.event.in_(ids) & unfinished)
    }
    # An event that was not routed yet gets its deliveries anyway.
    fresh = {
        row.id
        for row in Event.select(Event.id).where(Event.id.in_(ids) & Event.routed_at.is_null())
    }
    due = now() + timedelta(seconds=first_wait_s)
    rows = [
        {"event": event_id, "receiver": name, "next_attempt_at": due, "redelivery": True}
        for event_id, name in to_send
        if (event_id, name) not in busy and event_id not in fresh
    ]
    if rows:
        Delivery.insert_many(rows).execute()
    return len(rows)


def send_trial(owner_id: str, message: str) -> str:
    """Record an event that tells nothing, so that every receiver gets it like any other; returns
    its id."""
    with connection(), database.atomic():
        return str(record.record(owner_id, "webhook-test", Trial(message)).id)
