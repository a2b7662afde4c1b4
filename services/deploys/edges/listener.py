"""Hears, on a connection of its own, that what edges serve has changed."""
import logging
import select
import threading
from collections.abc import Callable

import psycopg2

from models.database import database
from services.deploys.edges.channel import CHANNEL

log = logging.getLogger(__name__)


class Listener(threading.Thread):
    """Calls `ring` after each change that the database tells of; who relies on it polls besides."""

    def __init__(self, ring: Callable[[], object]) -> None:
        super().__init__(name="deploys-listener", daemon=True)
        self._ring = ring

    def run(self) -> None:
        while True:
            try:
                self._listen()
            except (psycopg2.Error, OSError) as error:
                log.warning("the listener lost its connection: %s", type(error).__name__)
                threading.Event().wait(1)

    def _listen(self) -> None:
        parameters = {key: value for key, value in database.connect_params.items()
                      if key != "options"}
        link = psycopg2.connect(dbname=database.database, **parameters)
        try:
            link.autocommit = True
            with link.cursor() as cursor:
                cursor.execute(f"LISTEN {CHANNEL}")
            # poll, because select fails for a process with more than 1023 open files
            poller = select.poll()
            poller.register(link, select.POLLIN)
            while True:
                if poller.poll(30_000):
                    link.poll()
                    link.notifies.clear()
                    self._ring()
                else:
                    with link.cursor() as cursor:
                        cursor.execute("SELECT 1")
        finally:
            link.close()
