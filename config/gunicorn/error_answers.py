"""What gunicorn answers by itself to a request that it cannot read: the error shape of everything
else, not a page."""
import http
import json
import socket

from gunicorn import util

_TEXT_MAX = 300


def install() -> None:
    """Make gunicorn's workers answer in JSON; it has no setting for this."""
    util.write_error = write_error


def write_error(client: socket.socket, status: int, reason: str, text: str) -> None:
    """The whole answer: `text` says what is wrong, and may quote the request."""
    body = json.dumps({"error": f"{text[:_TEXT_MAX] or reason}."}).encode("ascii")
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nConnection: close\r\nContent-Type:"
        f" application/json\r\nCache-Control: no-store\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    util.write_nonblock(client, head.encode("ascii") + body)
