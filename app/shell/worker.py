"""The worker of the shell process: takes connections of its own port and those that the API hands
over, and closes open shells as soon as the process is to end."""
import contextlib
import selectors
import socket
import time

from app.http.server.arriving import Arriving
from app.http.server.handing_over import SHELL, listen, take_over
from app.http.server.worker import PatientWorker
from app.shell.routes import close_all

# The worker before this one may still be letting go of the name.
_TRIES, _PAUSE_S = 50, 0.1
# The API sends at once; whoever does not gives way.
_ROADS_MAX = 100


class ShellWorker(PatientWorker):
    """See the module."""

    def run(self) -> None:
        """The main loop of the process."""
        self._roads: dict[socket.socket, None] = {}
        self._road_listener = self._listen()
        self.poller.register(self._road_listener, selectors.EVENT_READ, self._accept_road)
        super().run()

    def _listen(self) -> socket.socket:
        for tries_left in reversed(range(_TRIES)):
            try:
                return listen(SHELL, self._settings.shell_port)
            except OSError:
                if not tries_left:
                    raise
                time.sleep(_PAUSE_S)
        raise AssertionError("unreachable")

    def _accept_road(self, listener: socket.socket) -> None:
        try:
            road, _ = listener.accept()
        except OSError:
            return
        if len(self._roads) >= _ROADS_MAX:
            self._close_road(next(iter(self._roads)))
        road.setblocking(False)
        self._roads[road] = None
        self.poller.register(road, selectors.EVENT_READ, self._take_over)

    def _take_over(self, road: socket.socket) -> None:
        try:
            found = take_over(road)
        except BlockingIOError:
            return
        self._close_road(road)
        if found is None:
            return
        link, received = found
        try:
            client, server = link.getpeername(), link.getsockname()
        except OSError:  # it has left
            link.close()
            return
        self._make_room()
        self.nr_conns += 1
        conn = self._connection(link, client, server)
        conn.arriving = Arriving(received)
        self._collect(conn)

    def _close_road(self, road: socket.socket) -> None:
        del self._roads[road]
        self.poller.unregister(road)
        road.close()

    def _close_listeners(self) -> None:
        super()._close_listeners()
        with contextlib.suppress(KeyError, ValueError):
            self.poller.unregister(self._road_listener)
        self._road_listener.close()
        close_all(self.wsgi)
