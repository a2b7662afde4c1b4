"""Whether a request may become a WebSocket of svc.shell.v1 (RFC 6455, 4.2.1), asked before anything
is done for it."""
import base64
import binascii

from flask import Request

from app.shell.frames import SUBPROTOCOL
from app.shell.offered_credential import protocols_of
from services.errors import InvalidRequest, UpgradeRequired

_VERSION = "13"
_KEY_BYTES = 16


def check(request: Request) -> None:
    """Raises UpgradeRequired for another version, InvalidRequest for what no client of ours sends
    and where svc.shell.v1 is not offered."""
    version = request.headers.get("Sec-WebSocket-Version", "").strip()
    if version != _VERSION or request.environ["SERVER_PROTOCOL"] != "HTTP/1.1":
        raise UpgradeRequired("A shell is a WebSocket of version 13.")
    try:
        key = base64.b64decode(request.headers.get("Sec-WebSocket-Key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidRequest("Sec-WebSocket-Key is not 16 bytes in base64")
    if SUBPROTOCOL not in protocols_of(request):
        raise InvalidRequest(f"Sec-WebSocket-Protocol does not offer {SUBPROTOCOL}")
