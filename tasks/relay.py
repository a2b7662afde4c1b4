"""Sends what was written to the outbox but not handed to the broker: `python -m tasks.relay`.

It runs beside the API, not in it: a message must also leave when the process that wrote it has
died.
"""
import logging
import signal
import sys
import threading

import peewee

from config.logging import configure
from config.settings import get_settings
from models.database import connection
from services.operations.outbox import relay_once
from services.protocols import QueueUnavailable
from tasks.wiring import get_deps, get_queue

log = logging.getLogger(__name__)


def run(stop: threading.Event, poll_s: float) -> None:
    """Relay until `stop` is set; a broker or database that is away is waited for."""
    while not stop.is_set():
        sent = 0
        try:
            with connection():
                sent = relay_once(get_queue())
        except QueueUnavailable as error:
            log.warning("the broker does not take messages (%s); trying again", error)
        except peewee.PeeweeException as error:
            log.warning("the database does not answer (%s); trying again", type(error).__name__)
        if sent:
            log.info("relayed %d messages", sent)
        else:
            stop.wait(poll_s)


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    configure(get_settings().log_level)
    get_deps()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("relay is up")
    run(stop, get_settings().relay_poll_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
