"""Request bodies: read with a limit whatever the client announces, parsed strictly, and checked by
a schema.

What the rest of the program may rely on afterwards: no NUL, no lone surrogate, no number that not
every reader of JSON has exactly, no NaN, no deep nesting anywhere in a body, so that neither the
database nor the guest ever meets one. Fields of ours that are numbers have bounds of their own.
"""
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from urllib.parse import unquote_to_bytes

from flask import request
from gunicorn.http.errors import ParseException
from marshmallow import Schema, ValidationError
from werkzeug.exceptions import ClientDisconnected

from app.http import admission
from app.http.bodies.buffers import current_account
from app.http.bodies.strict_json import check_values, parse
from services.errors import InvalidRequest, ServiceError, TooLarge

_CHUNK_BYTES = 64 * 1024
_SHOWN_ERRORS = 3
# The bytes, the text that they are, the values of it, and what their base64 means.
_COPIES = 4


class UnsupportedMediaType(ServiceError):
    """A body that does not say it is JSON."""

    status = 415


def load(schema: Schema, limit_bytes: int) -> Any:
    """The request's JSON body, of at most `limit_bytes`, as the schema makes it; no body at all
    counts as an empty object.

    Raises InvalidRequest, TooLarge, UnsupportedMediaType.
    """
    return check(schema, _read_json(limit_bytes, {}))


def load_list(schema: Schema, limit_bytes: int, *, most: int) -> list[Any]:
    """The request's JSON body as a list of what the schema makes; raises as `load`, and for more
    than `most` items."""
    items = _read_json(limit_bytes, None)
    if not isinstance(items, list) or len(items) > most:
        raise InvalidRequest(f"The body must be a list of at most {most} items.")
    return [check(schema, item, path=str(index)) for index, item in enumerate(items)]


def _read_json(limit_bytes: int, absent: Any) -> Any:
    raw = read(limit_bytes)
    if not raw:
        return absent
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("The body must be JSON with Content-Type: application/json.")
    return parse(raw)


def load_query(schema: Schema) -> Any:
    """The request's query parameters as the schema makes them; raises InvalidRequest, also for one
    given twice, or that is not UTF-8."""
    if b"%" in request.query_string:
        _check_utf_8(unquote_to_bytes(request.query_string))
    query = request.args.to_dict(flat=True)
    twice = sorted(name for name, values in request.args.lists() if len(values) > 1)
    if twice:
        raise InvalidRequest(f"{twice[0][:80]}: is given more than once")
    check_values(query)
    return check(schema, query)


def load_path(schema: Schema, **parts: str) -> Any:
    """Parts of the request's address as the schema makes them; raises InvalidRequest, also if it is
    not UTF-8."""
    _check_utf_8(request.environ["PATH_INFO"].encode("latin-1"))
    check_values(parts)
    return check(schema, parts)


def _check_utf_8(address: bytes) -> None:
    """What cannot be read would be taken for other text."""
    try:
        address.decode()
    except UnicodeError as error:
        raise InvalidRequest("The address is not valid UTF-8.") from error


def read(limit_bytes: int) -> bytearray:
    """The whole body; raises TooLarge as soon as it is known to have more than `limit_bytes`,
    announced or not, InvalidRequest if it is broken or shorter than announced, and Unavailable if
    there is no room for it."""
    announced = request.content_length
    if (announced or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    account, received = current_account(), bytearray()
    # Our worker says so of a body whose client may still be sending it.
    is_slow = getattr(request.environ["wsgi.input"], "is_slow", False)
    with admission.place_to_read() if is_slow else nullcontext():
        while piece := _next_piece():
            account.require(_COPIES * len(piece))
            received += piece
            if len(received) > limit_bytes:
                raise _too_large(limit_bytes)
    _check_whole(len(received), announced)
    return received


def stream(limit_bytes: int) -> tuple[int | None, Iterator[bytes]]:
    """The body in pieces, of any content type, and its announced size, if it has one; nothing is
    kept.

    Raises TooLarge at once if it announces more than `limit_bytes`, and InvalidRequest if it is a
    part only. The pieces raise the former as soon as there are more, and the latter if the body is
    broken or shorter than announced.
    """
    if "Content-Range" in request.headers:
        raise InvalidRequest("Content-Range: parts are not put together here; send the whole.")
    announced = request.content_length
    if (announced or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    return announced, _pieces(limit_bytes, announced)


def _pieces(limit_bytes: int, announced: int | None) -> Iterator[bytes]:
    received = 0
    while piece := _next_piece():
        received += len(piece)
        if received > limit_bytes:
            raise _too_large(limit_bytes)
        yield piece
    _check_whole(received, announced)


def _check_whole(received: int, announced: int | None) -> None:
    """Of a client that goes away the parser says only that no more comes."""
    if announced is not None and received != announced:
        raise InvalidRequest(f"The body ended after {received} of {announced} bytes.")


def _next_piece() -> bytes:
    try:
        return request.stream.read(_CHUNK_BYTES)
    except (ClientDisconnected, ParseException, OSError) as error:
        raise InvalidRequest(
            "The body is broken, ended too early, stopped coming or comes too slowly.") from error


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit_bytes} bytes.")


def check(schema: Schema, value: Any, path: str = "") -> Any:
    """`value`, which stood at `path` in the body, as the schema makes it.

    Raises InvalidRequest with the first few complaints.
    """
    try:
        return schema.load(value)
    except ValidationError as error:
        complaints = list(_flatten(error.messages, path))[:_SHOWN_ERRORS]
        raise InvalidRequest("; ".join(complaints)) from error


def _flatten(messages: Any, path: str) -> Any:
    if isinstance(messages, dict):
        # marshmallow reports unknown fields in the order of a set, which differs from process to
        # process.
        for name, inner in sorted(messages.items(), key=lambda item: str(item[0])):
            step = "" if name == "_schema" else str(name)[:80]
            yield from _flatten(inner, f"{path}.{step}".strip("."))
    elif isinstance(messages, list):
        for inner in messages:
            yield from _flatten(inner, path)
    else:
        yield f"{path}: {messages}" if path else str(messages)
