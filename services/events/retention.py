"""Says how long events are kept: those older than SVC_EVENT_DAYS go with their ledger, but for one
that is still to be delivered."""
from datetime import timedelta

from models.database import now
from models.events import Delivery, Event
from models.states import OPEN_DELIVERY_STATES

_BATCH = 500


def forget_old(days: int) -> int:
    """Remove events older than `days` days with their ledger, at most a batch; returns how many."""
    old = (
        Event.select(Event.id)
        .where(Event.occurred_at < now() - timedelta(days=days))
        .order_by(Event.occurred_at)
        .limit(_BATCH)
    )
    unfinished = Delivery.select(Delivery.event).where(Delivery.state.in_(OPEN_DELIVERY_STATES))
    return int(Event.delete().where(Event.id.in_(old) & Event.id.not_in(unfinished)).execute())
