"""Says how long events are kept: those older than SVC_EVENT_DAYS go with their ledger, but for one
that is still to be delivered, or of which it was not yet said to whom."""
from datetime import timedelta

import peewee

from models.database import now
from models.events import Delivery, Event
from models.states import OPEN_DELIVERY_STATES

_BATCH = 500


def forget_old(days: int) -> int:
    """Remove events older than `days` days with their ledger, at most a batch; returns how many, 0
    days keeps them all."""
    if days <= 0:
        return 0
    unfinished = Delivery.select().where(
        (Delivery.event == Event.id) & Delivery.state.in_(OPEN_DELIVERY_STATES))
    old = (
        Event.select(Event.id)
        .where((Event.occurred_at < now() - timedelta(days=days)) & Event.routed_at.is_null(False)
               & ~peewee.fn.EXISTS(unfinished))
        .order_by(Event.occurred_at)
        .limit(_BATCH)
    )
    return int(Event.delete().where(Event.id.in_(old)).execute())
