"""Sockets that are closed without haste: what their clients still send is read for a while, so that
they read the answer before the reset that unread bytes cause."""
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

from gunicorn import util

_LINGER_S, _LINGER_BYTES, _MOST = 2.0, 64 * 1024, 1000
_RECEIVE_BYTES = 64 * 1024


class Lingering:
    """Those of one loop, whose poller tells when something comes."""

    def __init__(self, poller: selectors.BaseSelector) -> None:
        self._poller = poller
        # Until when each lingers, and how much has come of it.
        self._links: dict[socket.socket, tuple[float, int]] = {}

    def close(self, link: socket.socket) -> None:
        """Close our side of a socket, and all of it a little later; more than enough lose their
        eldest."""
        try:
            link.setblocking(False)
            link.shutdown(socket.SHUT_WR)
        except OSError:
            util.close(link)
            return
        if len(self._links) >= _MOST:
            self._end(next(iter(self._links)))
        self._links[link] = time.monotonic() + _LINGER_S, 0
        self._poller.register(link, selectors.EVENT_READ, self._drain)

    def overdue(self, present: float) -> Iterator[Callable[[], None]]:
        """What ends each that has had its time."""
        while self._links:
            link, (until, _) = next(iter(self._links.items()))
            if until > present:
                return
            yield partial(self._end, link)

    def _drain(self, link: socket.socket) -> None:
        until, drained = self._links[link]
        try:
            data = link.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._links[link] = until, drained + len(data)
        if not data or drained + len(data) > _LINGER_BYTES:
            self._end(link)

    def _end(self, link: socket.socket) -> None:
        del self._links[link]
        self._poller.unregister(link)
        util.close(link)
