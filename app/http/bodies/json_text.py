"""Writes the JSON of an answer, a long one piece by piece, so that it is never in memory as a
whole.

An answer with a `LongText` in it is sent as it is made. What goes wrong before its first quarter of
a mebibyte has been made is an error like any other. Later, when the status has been sent, the
connection is broken off, and the client sees that the body has no end.
"""
import errno
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from flask import Response, g
from flask.json.provider import DefaultJSONProvider

from app.http.held import keep_until_sent
from app.schemas.answers import LongText
from services.errors import ServiceError

log = logging.getLogger(__name__)
WHOLE_BYTES = 256 * 1024
# Made once: `json.dumps` makes an encoder each time, and Flask's looks for the app besides.
_encode = json.JSONEncoder(separators=(",", ":"), default=DefaultJSONProvider.default).encode
_encode_text = json.JSONEncoder(ensure_ascii=False).encode


def fill(response: Response, shown: Any) -> None:
    """Make `shown`, as an answer dumps it, the body of `response`."""
    response.mimetype = "application/json"
    if not isinstance(shown, Mapping) or not any(isinstance(value, LongText)
                                                 for value in shown.values()):
        response.set_data(_encode(shown) + "\n")
        return
    made, pieces = bytearray(), _pieces(shown)
    for piece in pieces:
        made += piece
        if len(made) > WHOLE_BYTES:
            response.response = _until_broken(bytes(made), pieces, g.get("request_id"))
            keep_until_sent(response)
            return
    response.set_data(bytes(made))


def _pieces(shown: Mapping[str, Any]) -> Iterator[bytes]:
    before = b"{"
    for name, value in shown.items():
        yield before + _encode(name).encode() + b":"
        if isinstance(value, LongText):
            yield b'"'
            for text in value.pieces:
                yield _encode_text(text)[1:-1].encode()
            yield b'"'
        else:
            yield _encode(value).encode()
        before = b","
    yield b"}\n"


def _until_broken(made: bytes, pieces: Iterator[bytes],
                  request_id: str | None) -> Iterator[bytes]:
    try:
        yield made
        yield from pieces
    except ServiceError as error:
        log.warning("an answer was broken off: %s", error.text, extra={"request": request_id})
        # What gunicorn takes for a connection that is gone: it closes it without an end of the
        # body.
        raise BrokenPipeError(errno.EPIPE, "the answer was broken off") from error
