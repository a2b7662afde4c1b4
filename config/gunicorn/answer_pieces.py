"""How gunicorn sends an answer: its head together with the first piece of its body, so that a small
answer is one packet, and wakes its client once."""
from typing import Any

from gunicorn import util
from gunicorn.http import wsgi


def install() -> None:
    """Make gunicorn's workers answer so; it has no setting for this."""
    wsgi.Response = Answer


class Answer(wsgi.Response):
    """See the module."""

    sock: Any

    def write(self, arg: bytes) -> None:
        """Send a piece of the body, and before the first one the head."""
        if self.headers_sent:
            super().write(arg)
            return
        link, collected = self.sock, _Collected()
        self.sock = collected
        try:
            super().write(arg)
        finally:
            self.sock = link
        util.write(link, b"".join(collected.pieces))


class _Collected:
    """Takes what is written to it in place of a socket."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def sendall(self, data: Any) -> None:
        self.pieces.append(data)
