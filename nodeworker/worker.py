"""The Celery app of a VM host; one worker process per lane (`SVC_LANE`: ctl, ops, bulk, archive,
deploy).

At start 1. the ctl lane reclaims what an earlier life left on the host, then begins to send
heartbeats; 2. every lane ends the leases it held before, so that interrupted operations are taken
up at once. A worker whose start fails says why and exits with code 1, for the supervisor to start
it again; it never stays "ready" with half of its start undone.
"""
import logging
import os
import sys

from celery import Celery
from celery.signals import setup_logging, worker_ready

from config.celery import celery_options
from config.logging import configure
from config.settings import get_settings
from models.states import Lane
from services.operations.announcements import queue_name

log = logging.getLogger(__name__)
LANE = Lane(os.environ.get("SVC_LANE", "ctl"))
# How long a thread works in Python while others of its lane want to: with Python's own 5 ms the
# last of ten sandboxes that are made at once is later (docs/decisions/0051).
sys.setswitchinterval(0.0005)

settings = get_settings()
app = Celery("svc-node", include=["nodeworker.jobs"])
app.conf.update(celery_options(settings))
app.conf.task_default_queue = queue_name(settings.node_id, LANE)


@setup_logging.connect  # type: ignore[untyped-decorator]
def _logging(**_: object) -> None:
    configure(settings.log_level)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start(**_: object) -> None:
    from nodeworker import startup
    from nodeworker.wiring import get_deps

    try:
        startup.begin(get_deps(), LANE)
    except Exception as error:
        log.critical("the start of lane %s failed, so this worker exits: %s: %s", LANE.value,
                     type(error).__name__, error, exc_info=True)
        # Celery logs and forgets every Exception of a signal's receiver, but not this.
        raise SystemExit(1) from error
