"""A connection, and what its client has sent of the next request."""
import socket
from collections.abc import Callable
from typing import Any

from gunicorn import http, util
from gunicorn.workers.gthread import TConn

from app.http.server.arriving import Arriving, Stage
from app.http.server.body_pace import PacedSocket


class Connection(TConn):
    """A connection whose client may be slow: `arriving` is the request that is being collected."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any, silence_s: float,
                 linger: Callable[[socket.socket], None]) -> None:
        super().__init__(cfg, sock, client, server)
        self.parser: Any = None
        self.arriving = Arriving()
        self.data_ready = True
        self.source = PacedSocket(sock, silence_s)
        self._linger = linger

    def close(self, graceful: bool = False) -> None:
        """Close at once, or `graceful`ly: after what was written has been read."""
        if graceful:
            self._linger(self.sock)
        else:
            util.close(self.sock)

    def give_to_parser(self) -> None:
        """Let the parser have what was collected."""
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.source, self.client)
        self.parser.unreader.unread(bytes(self.arriving.received))
        # Of a head that is too large or breaks off the parser says what is wrong with it.
        stage = self.arriving.stage
        self.source.begin(ended=stage is not Stage.STREAMED, too_large=stage is Stage.TOO_LARGE)
        self.arriving = Arriving()
