"""Events as they are told to receivers, their deliveries, and the ledger of every attempt."""
import peewee

from models.database import now
from models.row import Row, TimeField
from models.states import AttemptOutcome, DeliveryState


class Event(Row):
    """Something that happened; `body` is the very text that is sent and signed, `subject` the
    sandbox's id or the deploy's slug. `routed_at` is set once its deliveries have been made, also
    when there was no receiver."""

    id = peewee.TextField(primary_key=True)
    type = peewee.TextField()
    owner_id = peewee.TextField()
    subject = peewee.TextField()
    occurred_at = TimeField()
    body = peewee.TextField()
    routed_at = TimeField(null=True)

    class Meta:
        table_name = "events"


class Delivery(Row):
    """The duty to tell one receiver of one event. While SENDING it belongs to `claimed_by` until
    `lease_until`."""

    id = peewee.BigAutoField()
    event = peewee.ForeignKeyField(Event, column_name="event_id", index=False)
    receiver = peewee.TextField()
    state = peewee.TextField(default=DeliveryState.PENDING)
    redelivery = peewee.BooleanField(default=False)
    attempts = peewee.IntegerField(default=0)
    next_attempt_at = TimeField()
    claimed_by = peewee.TextField(null=True)
    lease_until = TimeField(null=True)
    created_at = TimeField(default=now)
    finished_at = TimeField(null=True)

    class Meta:
        table_name = "deliveries"


class DeliveryAttempt(Row):
    """One attempt, written before anything is sent. `sender` is the process that made it."""

    id = peewee.BigAutoField()
    delivery = peewee.ForeignKeyField(Delivery, column_name="delivery_id", index=False)
    number = peewee.IntegerField()
    sender = peewee.TextField()
    started_at = TimeField()
    duration_ms = peewee.FloatField(null=True)
    outcome = peewee.TextField(default=AttemptOutcome.UNDER_WAY)
    http_status = peewee.IntegerField(null=True)
    reason = peewee.TextField(null=True)

    class Meta:
        table_name = "delivery_attempts"
