"""Sends messages that must not be lost: they are written with the change, sent after the commit,
and sent again by the relay.

1. Inside the transaction: `add` writes a row. 2. After the commit: `flush` hands it to the broker
and removes the row. 3. If the process dies or the broker is away in between, `relay_once` finds the
row. A message may therefore arrive twice; consumers claim work by compare-and-set and do not mind.
"""
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from models.database import (
    UNLOCKED_ROWS,
    DatabaseUnavailable,
    connection,
    database,
    now,
    relaxed_transaction,
)
from models.operations import OutboxMessage
from models.row import Statement
from services.protocols import Queue, QueueUnavailable

log = logging.getLogger(__name__)
# A row younger than this is still in the hands of the process that wrote it.
_SETTLE = timedelta(milliseconds=500)
_BATCH = 100
Messages = Sequence[OutboxMessage]


def add(queue: str, job: str, payload: Mapping[str, Any]) -> OutboxMessage:
    """Write a message in the current transaction; `payload` must hold no secrets."""
    return OutboxMessage.create(queue=queue, job=job, payload=dict(payload))


def flush(queue: Queue, messages: Messages, *, keep: bool = True) -> None:
    """Send committed messages at once. Those the broker does not take stay for the relay; without
    `keep` they do not, because whoever wrote them writes them again as long as they are needed, and
    each time one more would stay.

    Raises nothing because of the database: what was committed is done, and a row that stays is sent
    once more.
    """
    sent = []
    for message in messages:
        try:
            queue.publish(message.queue, message.job, message.payload)
        except QueueUnavailable:
            break
        sent.append(message.id)
    over = sent if keep else [message.id for message in messages]
    if over:
        try:
            # Many callers are done with theirs; one that is opened on the way would stay for ever.
            with connection(), relaxed_transaction():
                OutboxMessage.delete().where(OutboxMessage.id.in_(over)).execute()
        except DatabaseUnavailable as error:
            log.warning("%d messages will be sent again: the database went away (%s)", len(over),
                        type(error).__name__)


def relay_once(queue: Queue) -> int:
    """Send what was left behind, oldest first; returns how many. Raises QueueUnavailable, leaving
    the rest."""
    settled = now() - _SETTLE
    if _LEFT.find(settled) is None:
        return 0
    with database.atomic():
        messages = list(_left(settled).for_update(UNLOCKED_ROWS))
        for message in messages:
            queue.publish(message.queue, message.job, message.payload)
            message.delete_instance()
    return len(messages)


def _left(settled: Any) -> Any:
    return OutboxMessage.select().where(OutboxMessage.created_at < settled).order_by(
        OutboxMessage.id).limit(_BATCH)


_LEFT = Statement(OutboxMessage, _left)
