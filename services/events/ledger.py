"""What an operator sees of events and their deliveries."""
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import peewee

from models.database import connection, database
from models.events import Delivery, DeliveryAttempt, Event
from models.states import DeliveryState
from services.errors import NotFound
from services.events import record
from services.events.types import Trial


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
        found = list(matching(wanted).order_by(Event.occurred_at.desc(), Event.id).limit(limit))
        return [_history(event) for event in found]


def get_event(event_id: str) -> History:
    """One event; raises NotFound."""
    with connection():
        event = Event.get_or_none(Event.id == event_id)
        if event is None:
            raise NotFound(f"There is no event {event_id}.")
        return _history(event)


def matching(wanted: Filter) -> peewee.ModelSelect:
    """The rows of the events that match, in no order."""
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


def send_trial(owner_id: str, message: str) -> str:
    """Record an event that tells nothing, so that every receiver gets it like any other; returns
    its id."""
    with connection(), database.atomic():
        return str(record.record(owner_id, "webhook-test", Trial(message)).id)
