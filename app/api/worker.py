"""The worker of the API process: it gives the WebSockets of shells to the shell process."""
import contextlib

from gunicorn import util

from app.http.server.handing_over import begins_shell, hand_over
from app.http.server.worker import Connection, PatientWorker


class ApiWorker(PatientWorker):
    """See the module."""

    def _hand_over(self, conn: Connection) -> None:
        received = bytes(conn.arriving.received)
        if not begins_shell(received):
            super()._hand_over(conn)
            return
        self.nr_conns -= 1
        if hand_over(self._settings.shell_port, conn.sock, received):
            conn.close()
            return
        with contextlib.suppress(OSError):
            util.write_error(conn.sock, 503, "Service Unavailable",
                             "Shells are not available right now; try again in a moment")
        conn.close(graceful=True)
