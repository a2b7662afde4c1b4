"""The wire format between the service and the guest agent: frames, their types, operation names,
failure codes.

Every frame is one type byte, a four-byte big-endian length and that many bytes. The client opens
with REQUEST (JSON with `op` and `token`); the agent ends its reply with RESULT or FAILURE and then
closes. Both sides treat a bad type or length as the end of the connection, because the other side
may be hostile or half dead.

A connection carries one request. If that says `"keep": true` and the RESULT `"kept": true`, the
client may send the next one, with a token of its own, within REQUEST_WAIT_S.

An open shell (`shell`) is the request after which both sides go on sending, for hours if need be:

1. The client sends REQUEST: `cols`, `rows`, and if it likes `cwd`, `env`, `term` and `id`, a name
   of its own for the shell.
2. The agent answers CONTROL `{"type": "opened"}` once the shell runs, or FAILURE.
3. The client sends DATA, bytes that are typed (never none: the end of input is a byte, too), and
   CONTROL: `{"type": "resize", "cols": 80, "rows": 24}` or `{"type": "signal", "name": "INT"}`,
   which goes to the group in the foreground. The agent sends STDOUT, the bytes of the terminal, cut
   anywhere.
4. When the shell has ended and its output is sent, the agent ends with RESULT `{"exitCode": 0}`,
   128 and the number for a signal. A client that closes before that hangs up the shell.

There is no window and no credit: a side that has enough stops reading, and TCP holds the other.
"""
import json
import struct
from collections.abc import Iterator
from typing import Any

AGENT_VERSION = "1"
AGENT_PORT = 1024

REQUEST, DATA, STDOUT, STDERR, RESULT, FAILURE, CONTROL = 1, 2, 3, 4, 5, 6, 7
FRAME_TYPES = frozenset({REQUEST, DATA, STDOUT, STDERR, RESULT, FAILURE, CONTROL})

MAX_PAYLOAD_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024
HEADER = struct.Struct(">BI")
# How long the agent waits for a request, in seconds of its own clock, which a sleeping guest has
# not.
REQUEST_WAIT_S = 10.0

DEFAULT_CAP_BYTES = 8 * 1024 * 1024
DEFAULT_TIMEOUT_MS = 60_000
TIMED_OUT_EXIT_CODE = 124
NOT_EXECUTABLE_EXIT_CODE = 126
NOT_FOUND_EXIT_CODE = 127

DEFAULT_TERM = "xterm-256color"
MAX_TERMINAL_SIDE = 4096
# Which signals an open shell passes on, without the SIG before their names.
SHELL_SIGNALS = frozenset({"CONT", "HUP", "INT", "KILL", "QUIT", "TERM", "TSTP", "USR1", "USR2"})

UNAUTHORIZED = "unauthorized"
BAD_REQUEST = "bad_request"
NOT_FOUND = "not_found"
NOT_A_FILE = "not_a_file"
PERMISSION = "permission"
TOO_LARGE = "too_large"
TOO_MANY = "too_many"
NO_SPACE = "no_space"
FAILED = "failed"

# Made once: it costs as much as their work, and an emulated guest translates it before it answers.
_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class ProtocolError(Exception):
    """The peer sent something that is not a frame; the connection is of no further use."""


class Refused(Exception):
    """The agent declines a request; becomes a FAILURE frame with `code` and `message`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def encode_frame(kind: int, payload: bytes = b"") -> bytes:
    """One frame, ready to send; `payload` must not exceed MAX_PAYLOAD_BYTES."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {len(payload)} bytes does not fit a frame")
    return HEADER.pack(kind, len(payload)) + payload


def encode_json(kind: int, value: dict[str, Any]) -> bytes:
    """One frame whose payload is `value` as compact JSON."""
    return encode_frame(kind, to_json(value).encode())


def to_json(value: dict[str, Any]) -> str:
    """`value` as compact JSON."""
    return _ENCODER.encode(value)


def decode_json(payload: bytes) -> dict[str, Any]:
    """The JSON object in `payload`; raises ProtocolError for anything that is not an object."""
    try:
        text = payload.decode().strip()
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a payload that should be JSON is not") from error
    if not isinstance(value, dict) or end < len(text):
        raise ProtocolError("a payload that should be a JSON object is not")
    return value


def decode_header(header: bytes) -> tuple[int, int]:
    """Type and payload length of a frame from its five first bytes; raises ProtocolError if either
    is impossible."""
    kind, length = HEADER.unpack(header)
    if kind not in FRAME_TYPES:
        raise ProtocolError(f"there is no frame type {kind}")
    if length > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a frame of {length} bytes exceeds the limit")
    return kind, length


class FrameReader:
    """Cuts a byte stream into frames; holds at most one incomplete frame plus what was last fed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes) -> None:
        """Add bytes as they came from the socket."""
        self._buffer += received

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Every complete frame so far, removed from the buffer as it is yielded; raises
        ProtocolError."""
        while frame := self.next_frame():
            yield frame

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next complete frame, removed from the buffer, if there is one; raises
        ProtocolError."""
        if len(self._buffer) < HEADER.size:
            return None
        kind, length = decode_header(bytes(self._buffer[:HEADER.size]))
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER.size:end])
        del self._buffer[:end]
        return kind, payload

    def rest(self) -> bytes:
        """What has been fed and not yet yielded."""
        return bytes(self._buffer)
