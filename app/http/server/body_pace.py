"""Reads from a socket only as long as its client may take for a body, however it divides it."""
import socket
import time

from gunicorn.http.errors import LimitRequestHeaders

from app.http.pace import SLOWEST_BYTES_PER_S


class PacedSocket:
    """What gunicorn's parser reads from. A body may take `silence_s` without a byte, and in all
    that and a second for every SLOWEST_BYTES_PER_S that have come; then TimeoutError.

    `is_ended` says that nothing more is read for the request, and `lacked_more` that the parser
    asked for more nevertheless: it takes the request for longer than its collector did, and what
    comes next may belong to it."""

    def __init__(self, link: socket.socket, silence_s: float) -> None:
        self._link, self._silence_s = link, silence_s
        self._rest_s: float | None = None
        self._rest_until: float | None = None
        self.is_ended = self.lacked_more = self._too_large = False
        self.start_clock()

    def begin(self, *, ended: bool, too_large: bool = False) -> None:
        """Another request begins; one that has `ended` is in the parser's buffer already, and
        nothing more is read for it. A parser that needs more of a head that is `too_large` gets
        LimitRequestHeaders: its client is told so, with 431."""
        self.is_ended, self._too_large, self.lacked_more = ended, too_large, False
        self._rest_s = self._rest_until = None

    def limit_rest(self, limit_s: float) -> None:
        """What the route left unread of a body may take `limit_s`, once something is read of it: a
        thread that the host lets wait is no reason to give up a request that was read."""
        self._rest_s = limit_s

    def start_clock(self) -> None:
        """From now on the client has time for the rest of its body."""
        self._until = time.monotonic() + self._silence_s

    def recv(self, size: int) -> bytes:
        """As of a socket; empty where the request has ended."""
        if self._too_large:
            raise LimitRequestHeaders("the head is too large")
        if self.is_ended:
            self.lacked_more = True
            return b""
        present = time.monotonic()
        if self._rest_s is not None and self._rest_until is None:
            self._rest_until = present + self._rest_s
        left_s = min(self._until, self._rest_until or self._until) - present
        if left_s <= 0:
            raise TimeoutError("the body comes too slowly")
        self._link.settimeout(min(left_s, self._silence_s))
        try:
            data = self._link.recv(size)
        finally:
            self._link.settimeout(self._silence_s)
        self._until += len(data) / SLOWEST_BYTES_PER_S
        return data
