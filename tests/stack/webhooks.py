"""What the webhook tests share: events made on the spot, waiting for the ledger, checking what
receivers got."""
import json
import time
from collections.abc import Iterable
from datetime import datetime

import peewee

from models.database import connection, database
from models.events import Delivery, DeliveryAttempt
from models.ids import new_id
from models.states import DeliveryState
from sdk.webhooks import verify
from services.events import record
from tests.fakes.webhook_receiver import Arrival


def occur(patience_s: float = 0.0) -> str:
    """An event of a subject of its own; its id. Tries again for `patience_s` seconds while the
    database is away."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with connection(), database.atomic():
                return str(record.deploy_succeeded("owner", f"shop-{new_id()}", "run", None).id)
        except peewee.PeeweeException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def unfinished(ids: Iterable[str]) -> int:
    """How many of these events have a delivery that is not over, or none yet."""
    wanted = set(ids)
    with connection():
        over = {
            row.event_id
            for row in Delivery.select(Delivery.event, peewee.fn.bool_and(
                Delivery.state.in_([DeliveryState.DELIVERED, DeliveryState.DROPPED])).alias("over"))
            .where(Delivery.event.in_(wanted)).group_by(Delivery.event) if row.over
        }
    return len(wanted - over)


def ledger(ids: Iterable[str], path: str) -> dict[str, tuple[Delivery, list[DeliveryAttempt]]]:
    """Event id -> its delivery to the receiver at `path` of the receivers' host, with the
    attempts."""
    wanted = list(ids)
    with connection():
        rows = list(
            Delivery.select().where(Delivery.event.in_(wanted) & (Delivery.receiver == path)))
        attempts = list(
            DeliveryAttempt.select().join(Delivery).where(Delivery.id.in_([row.id for row in rows]))
            .order_by(DeliveryAttempt.number)
        )
    return {
        row.event_id: (row, [one for one in attempts if one.delivery_id == row.id]) for row in rows
    }


def check_signatures(arrivals: Iterable[Arrival], secrets: str | list[str]) -> int:
    """Verify every request as a receiver would; returns how many there were."""
    count = 0
    for arrival in arrivals:
        told = verify(secrets, arrival.headers, arrival.body, now=arrival.at)
        assert (told.id, told.type) == (arrival.headers["x-svc-webhook-id"],
                                        arrival.headers["x-svc-webhook-type"])
        assert arrival.headers["content-type"] == "application/json"
        count += 1
    return count


def lateness(arrivals: Iterable[Arrival], waits: tuple[float, ...]) -> list[float]:
    """Seconds after its time that each request came, `arrivals` being all that came, in order."""
    numbers: dict[str, int] = {}
    late = []
    for arrival in arrivals:
        numbers[arrival.event_id] = number = numbers.get(arrival.event_id, 0) + 1
        occurred_at = datetime.fromisoformat(
            json.loads(arrival.body)["occurredAt"].replace("Z", "+00:00"))
        late.append(arrival.at - occurred_at.timestamp() - sum(waits[:number]))
    return late
