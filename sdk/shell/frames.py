"""The frames of `svc.shell.v1`: binary messages whose first byte is the type."""
import json
from typing import Any

SUBPROTOCOL = "svc.shell.v1"
DATA, CONTROL, PING, PONG = b"\0", b"\1", b"\2", b"\3"
# the service takes messages of 64 KiB, and reads them one at a time
MAX_DATA_BYTES = 16 * 1024


def data(typed: bytes) -> list[bytes]:
    """Messages that type these bytes."""
    return [
        DATA + typed[start:start + MAX_DATA_BYTES]
        for start in range(0, len(typed), MAX_DATA_BYTES)
    ]


def resize(cols: int, rows: int) -> bytes:
    """The message that gives the terminal a size."""
    return CONTROL + json.dumps({"type": "resize", "cols": cols, "rows": rows}).encode()


def control(payload: bytes) -> dict[str, Any]:
    """What a control message says; an empty object for one that nobody understands."""
    try:
        message = json.loads(payload)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
