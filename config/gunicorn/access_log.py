"""The line of the access log for each request. gunicorn's own would first collect all headers and
variables of the request that a format might name."""
from datetime import timedelta
from typing import Any

from gunicorn.glogging import Logger


class AccessLogger(Logger):
    """gunicorn's logger, with an access log of one format: client, method, path, status, bytes of
    the body and duration. The path is without a query, which may carry a credential."""

    def access(self, resp: Any, req: Any, environ: dict[str, Any],
               request_time: timedelta) -> None:
        """Log an answered request."""
        self.access_log.info(
            "%s %s %s %s %s bytes %d ms", environ.get("REMOTE_ADDR", "-"),
            environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"),
            (resp.status or "-").partition(" ")[0], resp.sent,
            request_time.total_seconds() * 1000)
