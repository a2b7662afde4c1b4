"""Events and their deliveries in the rows, with a test as the sender."""


from models.database import database, now
from models.events import Delivery, DeliveryAttempt
from models.ids import new_id
from models.states import DeliveryState
from services.events import deliveries, record
from services.events.deliveries import Result

WAITS = (1.0, 5.0, 20.0)
PENDING, SENDING = DeliveryState.PENDING, DeliveryState.SENDING
DELIVERED, DROPPED = DeliveryState.DELIVERED, DeliveryState.DROPPED


def occur(count=1):
    """Events that have just happened; their ids."""
    made = []
    for number in range(count):
        with database.atomic():
            made.append(record.deploy_succeeded("u", f"shop{number}-{new_id()}", "run", None).id)
    return made


def route(*receivers):
    return deliveries.route(receivers, WAITS[0])


def make_due():
    Delivery.update(next_attempt_at=now()).where(Delivery.state == PENDING).execute()


def claim(receiver="a", sender="s1", limit=100, lease_s=30.0):
    return deliveries.claim_due(receiver, sender, limit=limit, lease_s=lease_s)


def fail(claimed, reason="HTTP 500"):
    deliveries.record_results([Result(claimed, False, 3.0, 500, reason)], WAITS)


def deliver(claimed):
    deliveries.record_results([Result(claimed, True, 3.0, 204)], WAITS)


def outcomes(delivery_id):
    rows = DeliveryAttempt.select().where(DeliveryAttempt.delivery == delivery_id).order_by(
        DeliveryAttempt.number)
    return [(row.number, row.outcome) for row in rows]


def dropped(*receivers):
    event_id, = occur()
    route(*receivers)
    Delivery.update(state=DROPPED, finished_at=now()).where(Delivery.event == event_id).execute()
    return event_id
