"""The frames of svc.shell.v1: a binary message whose first byte says what the rest is.

0 is input or output of the terminal in UTF-8, 1 is control in JSON, 2 is a ping, which is answered
by 3 with the same rest.
"""
import json
from collections.abc import Iterator

SUBPROTOCOL = "svc.shell.v1"
DATA, CONTROL, PING, PONG = range(4)
# What a client may send at most in a message, and what we send at most.
MESSAGE_BYTES = 64 * 1024
FRAME_BYTES = 32 * 1024
_ERROR_MAX = 500


class Unsupported(Exception):
    """A message that is none of svc.shell.v1; the text says why."""


def read(message: bytes) -> tuple[int, bytes]:
    """The type of a message and the rest of it; raises Unsupported."""
    if not message or message[0] > PONG:
        raise Unsupported("the first byte of a message is 0, 1, 2 or 3")
    return message[0], message[1:]


def read_resize(payload: bytes) -> tuple[int, int]:
    """Columns and rows of a control frame; raises ValueError, with a text for the client, for any
    other."""
    try:
        control = json.loads(payload)
    except (ValueError, RecursionError):
        control = None
    if not isinstance(control, dict) or control.get("type") != "resize":
        raise ValueError('a control frame is {"type":"resize","cols":80,"rows":24}')
    cols, rows = control.get("cols"), control.get("rows")
    if type(cols) is not int or type(rows) is not int:
        raise ValueError("cols and rows are whole numbers")
    return cols, rows


def pong(payload: bytes) -> bytes:
    """The answer to a ping."""
    return bytes([PONG]) + payload


def exit_of(exit_code: int) -> bytes:
    """Says that the shell has ended."""
    return _control({"type": "exit", "exitCode": exit_code})


def error_of(text: str) -> bytes:
    """Says what could not be done."""
    return _control({"type": "error", "error": text[:_ERROR_MAX]})


def _control(value: dict[str, object]) -> bytes:
    return bytes([CONTROL]) + json.dumps(value, separators=(",", ":")).encode()


class Output:
    """Cuts what a terminal shows into frames that end between characters, so that a client may
    decode each for itself. What is not UTF-8 passes unchanged."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def holds(self) -> bool:
        """Whether the beginning of a character waits for its end."""
        return bool(self._held)

    def frames(self, piece: bytes) -> Iterator[bytes]:
        """The frames of the next piece, which is of any size."""
        content, start = self._held + piece, 0
        whole = _whole(content)
        self._held = content[whole:]
        while start < whole:
            end = start + FRAME_BYTES - 1
            end = start + _whole(content[start:end]) if end < whole else whole
            yield bytes([DATA]) + content[start:end]
            start = end

    def rest(self) -> Iterator[bytes]:
        """What was held back, though its end has not come."""
        held, self._held = self._held, b""
        if held:
            yield bytes([DATA]) + held


def _whole(content: bytes) -> int:
    """How many bytes there are up to the last border of a character; all of them, if the end is not
    the beginning of one."""
    for back in range(1, min(3, len(content)) + 1):
        byte = content[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        return len(content) - back if _size(byte) > back else len(content)
    return len(content)


def _size(first: int) -> int:
    """How many bytes a character has that begins with this one."""
    if first >> 5 == 0b110:
        return 2
    if first >> 4 == 0b1110:
        return 3
    return 4 if first >> 3 == 0b11110 else 1
