"""Lifecycle operations, the messages that announce them, and the keys that make requests
repeatable."""
from typing import Any

import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import OperationState


class Operation(Row):
    """One lifecycle operation of one sandbox. `epoch` grows with each claim, so a worker that lost
    its lease cannot finish what another has taken over. `owner_id` is whose it counts as: that of
    the app for a builder or a runtime. `requested_by` is empty if the owner or the
    service itself asked for it; `note` tells an operator what is out of the ordinary, such as a
    boot without a template.

    A pending operation with a `due_at` is parked: it is claimed again when that has come.
    `waits_for` says in words what it waits for, since `wait_since`; `waited` has the seconds that
    it waited before that, for each such text. `readiness_port` is what a wake was asked to wait
    for, `ends_listener` that a boot's start command replaces whoever listens.
    """

    id = peewee.BigAutoField()
    sandbox_id = peewee.TextField()
    op_seq = peewee.BigIntegerField()
    kind = peewee.TextField()
    state = peewee.TextField(default=OperationState.PENDING)
    node_id = peewee.TextField()
    owner_id = peewee.TextField()
    lane = peewee.TextField()
    snapshot_id = peewee.TextField(null=True)
    after_id = peewee.BigIntegerField(null=True)
    attempts = peewee.IntegerField(default=0)
    epoch = peewee.IntegerField(default=0)
    claimed_by = peewee.TextField(null=True)
    lease_until = TimeField(null=True)
    announce_at = TimeField(default=now)
    due_at = TimeField(null=True)
    waits_for = peewee.TextField(null=True)
    wait_since = TimeField(null=True)
    waited = JsonField(null=True)
    deadline_at = TimeField()
    readiness_port = peewee.IntegerField(null=True)
    ends_listener = peewee.BooleanField(default=False)
    error = peewee.TextField(null=True)
    operator_error = peewee.TextField(null=True)
    note = peewee.TextField(null=True)
    requested_by = peewee.TextField(null=True)
    created_at = TimeField(default=now)
    started_at = TimeField(null=True)
    finished_at = TimeField(null=True)

    class Meta:
        table_name = "operations"

    @classmethod
    def numbered(cls, sandbox_id: Any, op_seq: Any) -> Any:
        """The condition that picks the operation of a sandbox with this number."""
        return (cls.sandbox_id == sandbox_id) & (cls.op_seq == op_seq)


class OutboxMessage(Row):
    """A message that must reach a queue; written with the change that causes it, removed once the
    broker has it."""

    id = peewee.BigAutoField()
    queue = peewee.TextField()
    job = peewee.TextField()
    payload = JsonField()
    created_at = TimeField(default=now)

    class Meta:
        table_name = "outbox"


class IdempotencyKey(Row):
    """The first request seen under a key, and the resource it made."""

    owner_id = peewee.TextField()
    route = peewee.TextField()
    key = peewee.TextField()
    request_hash = peewee.TextField()
    resource_id = peewee.TextField()
    response = JsonField(null=True)
    created_at = TimeField(default=now)
    expires_at = TimeField()

    class Meta:
        table_name = "idempotency_keys"
        primary_key = peewee.CompositeKey("owner_id", "route", "key")
