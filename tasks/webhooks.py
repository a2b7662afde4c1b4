"""The sender of webhooks: a Celery worker of the `webhooks` queue, apart from the others so that
receivers delay nobody else.

1. Beat's tick runs the sweep: it goes on with what dead senders left, makes the deliveries of new
   events, and asks for a pump for each receiver that has something due. Ticks are many; one at a
   time does the work.
2. A deliver job runs the pump of its receiver, if it is not running already. There is a thread for
   each, and some to spare, so that no receiver waits for another.
3. The first sweep ends the leases of earlier lives of this sender, so that a crash costs no more
   than the restart, and drops what waits for receivers that are no longer configured.
"""
import logging
import secrets
import threading
from typing import Any

import peewee
from celery import Celery
from celery.signals import setup_logging, worker_shutting_down

from config.celery import celery_options
from config.logging import configure
from config.settings import get_settings
from models import locks
from models.database import connection, database
from models.locks import Lock
from services.events import deliveries, retention
from services.events.receivers import webhook_options
from services.protocols import QueueUnavailable
from tasks import contracts
from tasks.webhook_pump import Pump
from tasks.wiring import get_deps, get_queue

log = logging.getLogger(__name__)

settings = get_settings()
options = webhook_options(settings)
app = Celery("svc-webhooks")
app.conf.update(celery_options(settings))
app.conf.task_default_queue = contracts.WEBHOOKS_QUEUE
app.conf.worker_concurrency = len(options.receivers) + 4

_stop = threading.Event()
# Set once what earlier lives of this sender left has been taken up.
_taken_up = threading.Event()
# Distinguishes this life of the sender from earlier ones of the same name.
_LIFE = secrets.token_hex(4)
_pumps = {receiver.name: Pump(receiver, options, _stop) for receiver in options.receivers}


@setup_logging.connect  # type: ignore[untyped-decorator]
def _logging(**_: object) -> None:
    configure(settings.log_level)


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _wind_down(**_: object) -> None:
    """What is under way ends within its time-out; nothing more is begun."""
    _stop.set()


def _name(task: Any) -> str:
    return f"{task.request.hostname}/{_LIFE}"


@app.task(name=contracts.WEBHOOKS_SWEEP, bind=True)  # type: ignore[untyped-decorator]
def sweep(task: Any) -> None:
    """Find what is due and have it sent."""
    get_deps()
    try:
        due = _sweep_rows(list(_pumps), _name(task))
        for name in due:
            get_queue().publish(
                contracts.WEBHOOKS_QUEUE,
                contracts.WEBHOOKS_DELIVER,
                {"receiver": name},
                expires_s=contracts.TICK_LIFE_S,
            )
    except (peewee.PeeweeException, QueueUnavailable) as error:
        log.warning("sweep given up (%s); the next tick sweeps again", type(error).__name__)


def _sweep_rows(names: list[str], sender: str) -> list[str]:
    """Bring the rows up to date; returns those receivers that have something due."""
    with connection():
        with database.atomic():
            if not locks.try_for_transaction(Lock.WEBHOOK_SWEEP):
                return []
            if not _taken_up.is_set():
                _take_up(sender)
            deliveries.release_expired(options.waits_s)
            deliveries.route(names, options.waits_s[0])
            due = deliveries.list_due(names)
        _taken_up.set()
    return due


def _take_up(sender: str) -> None:
    _drop_unconfigured()
    while found := deliveries.release_earlier(sender, options.waits_s):
        log.warning(
            "going on with %d deliveries that an earlier life of this sender had not finished",
            found)


@app.task(name=contracts.WEBHOOKS_DELIVER, bind=True)  # type: ignore[untyped-decorator]
def deliver(task: Any, **payload: Any) -> None:
    """Send to one receiver until nothing is due; a name that is not configured here is nobody's."""
    get_deps()
    pump = _pumps.get(contracts.parse(contracts.WEBHOOKS_DELIVER, payload).receiver)
    if pump:
        pump.run(_name(task))


@app.task(name=contracts.WEBHOOKS_TIDY)  # type: ignore[untyped-decorator]
def tidy() -> None:
    """Drop what waits for receivers that are gone, and forget what is old; without receivers,
    events are only kept."""
    get_deps()
    with connection():
        # Without receivers there is no sweep that would do this.
        while deliveries.release_expired(options.waits_s):
            pass
        _drop_unconfigured()
        while not _pumps and deliveries.route((), 0.0):
            pass
        while retention.forget_old(settings.event_days):
            pass


def _drop_unconfigured() -> None:
    dropped = deliveries.drop_unconfigured(list(_pumps))
    if dropped:
        log.warning("dropped %d deliveries to receivers that are no longer configured", dropped)
