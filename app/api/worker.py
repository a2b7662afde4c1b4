"""The worker of the API process: it gives the WebSockets of shells to the shell process, and
requests for models to the guest gateway."""
import contextlib

from gunicorn import util

from app.http.server.connection import Connection
from app.http.server.handing_over import GUEST_GATEWAY, SHELL, hand_over, wanted_by
from app.http.server.worker import PatientWorker

_NAMES = {SHELL: "Shells", GUEST_GATEWAY: "Models"}


class ApiWorker(PatientWorker):
    """See the module."""

    def _hand_over(self, conn: Connection) -> None:
        received = bytes(conn.arriving.received)
        process = wanted_by(received)
        if process is None:
            super()._hand_over(conn)
            return
        self.nr_conns -= 1
        port = self._settings.shell_port if process == SHELL else self._settings.guest_gateway_port
        if hand_over(process, port, conn.sock, received):
            conn.close()
            return
        with contextlib.suppress(OSError):
            util.write_error(
                conn.sock, 503, "Service Unavailable",
                f"{_NAMES[process]} are not available right now; try again in a moment")
        conn.close(graceful=True)
