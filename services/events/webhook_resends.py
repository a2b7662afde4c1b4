"""Sends events again that were told before, as an operator asks: one, or all of a time."""
from collections.abc import Sequence
from datetime import timedelta

from models.database import connection, database, now
from models.events import Delivery, Event
from models.states import OPEN_DELIVERY_STATES, DeliveryState
from services.errors import InvalidRequest, NotFound
from services.events.ledger import Filter, matching

_BATCH = 500


def redeliver(event_id: str, receivers: Sequence[str], first_wait_s: float, *,
              dry_run: bool = False) -> int:
    """Send one event again to each of `receivers`, on a schedule of its own; returns how many
    deliveries were made, or with `dry_run` would be.

    Same id, same bytes, new timestamp and signature. A receiver whose delivery is still open gets
    no second one.
    """
    with connection(), database.atomic():
        if not Event.select().where(Event.id == event_id).exists():
            raise NotFound(f"There is no event {event_id}.")
        return _send_again([(event_id, name) for name in receivers], first_wait_s, dry_run)


def redeliver_range(wanted: Filter, receivers: Sequence[str], first_wait_s: float, *,
                    dry_run: bool = False) -> int:
    """The same for all events that match; only to those of `receivers` whose own last delivery has
    `wanted.state`."""
    if wanted.since is None or wanted.until is None:
        raise InvalidRequest("A range needs its beginning and its end.")
    made, after = 0, ""
    with connection():
        while True:
            page = list(matching(wanted).where(Event.id > after).order_by(Event.id).limit(_BATCH))
            if not page:
                return made
            after = page[-1].id
            with database.atomic():
                to_send = _list_to_send([event.id for event in page], receivers, wanted.state)
                made += _send_again(to_send, first_wait_s, dry_run)


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


def _send_again(to_send: list[tuple[str, str]], first_wait_s: float, dry_run: bool) -> int:
    unfinished = Delivery.state.in_(OPEN_DELIVERY_STATES)
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
    if rows and not dry_run:
        Delivery.insert_many(rows).execute()
    return len(rows)
