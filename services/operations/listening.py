"""Hears what is told on a channel of Postgres (`NOTIFY`), on a connection of its own.

A connection that is lost is made again, a second later if need be. What is told meanwhile nobody
hears: who relies on it looks by itself now and then.
"""
import logging
import select
import socket
import threading
from collections.abc import Callable

import psycopg2

from models.database import database

log = logging.getLogger(__name__)
# After so long without a word the connection is asked whether it still lives.
_QUIET_MS = 30_000
_PAUSE_S = 1.0


class Listener(threading.Thread):
    """A thread that calls `hear` with the texts that have been told on `channel`, and `began`
    whenever it has begun to listen, also after it has lost its connection. Both return at once and
    ask the database nothing."""

    def __init__(self, channel: str, hear: Callable[[list[str]], object],
                 began: Callable[[], object] = lambda: None) -> None:
        super().__init__(name=f"{channel}-listener", daemon=True)
        self._channel, self._hear, self._began = channel, hear, began
        self._ended = threading.Event()
        # Closing one of them wakes the thread out of its poll.
        self._awake, self._alarm = socket.socketpair()

    def end(self) -> None:
        """Return once the thread has closed its connection."""
        self._ended.set()
        self._alarm.close()
        self.join()

    def run(self) -> None:
        with self._awake:
            while not self._ended.is_set():
                try:
                    self._listen()
                except (psycopg2.Error, OSError) as error:
                    log.warning("the listener of channel %s lost its connection (%s); who waits"
                                " polls until it is back", self._channel, type(error).__name__)
                    self._ended.wait(_PAUSE_S)

    def _listen(self) -> None:
        parameters = {
            key: value for key, value in database.connect_params.items() if key != "options"
        }
        link = psycopg2.connect(dbname=database.database, **parameters)
        try:
            link.autocommit = True
            with link.cursor() as cursor:
                cursor.execute(f"LISTEN {self._channel}")
            self._began()
            # poll, because select fails for a process with more than 1023 open files
            poller = select.poll()
            poller.register(link, select.POLLIN)
            poller.register(self._awake, select.POLLIN)
            while not self._ended.is_set():
                if poller.poll(_QUIET_MS):
                    link.poll()
                else:
                    with link.cursor() as cursor:
                        cursor.execute("SELECT 1")
                told = [notice.payload or "" for notice in link.notifies]
                link.notifies.clear()
                if told:
                    self._hear(told)
        finally:
            link.close()
