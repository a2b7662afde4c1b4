"""The body of a request: read whole, within limits, and passed on as it came, but for the model's
name and, where a stream would not tell its usage, the wish for it."""
import json
import re
from asyncio import TimeoutError as Overdue
from asyncio import wait_for
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from app.guest_gateway.llm.endpoints import Body, Endpoint
from app.guest_gateway.llm.forms import boundary_of, find_fields
from app.guest_gateway.llm.members import find_members
from app.http.owner_shares import Places
from services.errors import InvalidRequest, TooLarge, Unavailable

BODY_MOST_BYTES, BODY_S = 64 * 1024 * 1024, 120.0
# What all bodies may hold at a time, and those of one account.
_ALL_BYTES, _OWNERS_BYTES = 384 * 1024 * 1024, 128 * 1024 * 1024
_PIECE_BYTES, _VALUE_BYTES = 64 * 1024, 4096
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_WANTED = frozenset({"model", "stream", "stream_options", "background", *_LIMITS})
_MODEL_CHARACTERS = 256
_FORM = re.compile(r"multipart/form-data\s*;", re.IGNORECASE)


class Room:
    """What one request holds for its body, of what there is for all."""

    def __init__(self, all_rooms: Places, owner_id: str) -> None:
        self._all, self._owner_id, self._held_bytes = all_rooms, owner_id, 0

    def take(self, size_bytes: int) -> None:
        """Hold that much more; raises Unavailable."""
        if not self._all.take(self._owner_id, size_bytes):
            raise Unavailable("Too much is being sent at once; try again in a moment.",
                              retry_after_s=2)
        self._held_bytes += size_bytes

    def close(self) -> None:
        """Give everything back."""
        if self._held_bytes:
            self._all.give_back(self._owner_id, self._held_bytes)
            self._held_bytes = 0


def all_rooms() -> Places:
    """The room for the bodies of all requests of a process."""
    return Places(_ALL_BYTES, _OWNERS_BYTES)


async def read_body(request: web.BaseRequest, room: Room) -> bytes:
    """The whole body; raises TooLarge, Unavailable (no room), InvalidRequest (too slow, or
    broken)."""
    if (request.content_length or 0) > BODY_MOST_BYTES:
        raise _too_large()
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise InvalidRequest("A compressed body is not taken.")
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    kept = bytearray()
    try:
        await wait_for(_fill(request, room, kept), BODY_S)
    except Overdue:
        raise InvalidRequest("The body did not come within its time.") from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise InvalidRequest("The body cannot be read.") from None
    return bytes(kept)


async def _fill(request: web.BaseRequest, room: Room, kept: bytearray) -> None:
    async for piece in request.content.iter_any():
        if len(kept) + len(piece) > BODY_MOST_BYTES:
            raise _too_large()
        room.take(len(piece))
        kept += piece


@dataclass
class Asked:
    """What a request asks for, and the body that asks it."""

    body: bytes = b""
    content_type: str = ""
    model: str = ""
    is_stream: bool = False
    adds_usage: bool = False
    max_output_tokens: int | None = None
    text_bytes: int = 0
    _model_at: tuple[int, int] | None = None
    _quotes_model: bool = True
    _edits: list[tuple[int, int, bytes]] = field(default_factory=list)

    def forget(self) -> None:
        """Let go of the body: it has been sent."""
        self.body, self._edits = b"", []

    def pieces(self, model: str) -> list[bytes | memoryview]:
        """The body that asks for `model`, in pieces."""
        name = json.dumps(model).encode() if self._quotes_model else model.encode()
        edits = list(self._edits)
        if self._model_at is not None:
            edits.append((*self._model_at, name))
        elif model and self._quotes_model and self.body:
            edits.append((*_after_brace(self.body), b'"model":' + name + b","))
        whole, at = memoryview(self.body), 0
        pieces: list[bytes | memoryview] = []
        for begin, end, text in sorted(edits):
            pieces += [whole[at:begin], text]
            at = end
        return [*pieces, whole[at:]]


async def understand(endpoint: Endpoint, body: bytes, content_type: str) -> Asked:
    """Read what matters of a body; raises InvalidRequest."""
    if endpoint.body is Body.NONE:
        return Asked()
    if endpoint.body is Body.FORM:
        return _read_form(body, content_type)
    asked = await _read_json(body, takes_background=endpoint.path != "/responses")
    if endpoint.says_usage_when_asked and asked.is_stream:
        return asked
    asked.adds_usage, asked._edits = False, []
    return asked


async def _read_json(body: bytes, *, takes_background: bool) -> Asked:
    members = await find_members(body, _WANTED)
    found = {name: _value(body, *place) for name, place in members.found.items()}
    if members.is_empty:
        raise InvalidRequest("The body is empty.")
    model, options = found.get("model"), found.get("stream_options")
    if not isinstance(model, (str, type(None))):
        raise InvalidRequest("model has to be a text.")
    if found.get("background") and not takes_background:
        # Nobody would be told here what it used.
        raise InvalidRequest("The LLM proxy answers at once; leave background out, or set it to"
                             " false.")
    asked = Asked(body, "application/json", _checked(model or ""), found.get("stream") is True,
                  text_bytes=members.text_bytes, _model_at=members.found.get("model"))
    limits = [found[name] for name in _LIMITS if type(found.get(name)) is int]
    asked.max_output_tokens = max(0, *limits, 0) if limits else None
    if options is None or (isinstance(options, dict) and not options.get("include_usage")):
        asked.adds_usage = True
        wish = json.dumps({**(options or {}), "include_usage": True}).encode()
        place = members.found.get("stream_options")
        asked._edits.append((*place, wish) if place else
                            (*_after_brace(body), b'"stream_options":' + wish + b","))
    return asked


def _read_form(body: bytes, content_type: str) -> Asked:
    if not _FORM.match(content_type):
        raise InvalidRequest("The body has to be multipart/form-data.")
    fields = find_fields(body, boundary_of(content_type), ("model", "stream"))
    model = body[slice(*fields["model"])] if "model" in fields else b""
    if len(model) > _VALUE_BYTES:
        raise InvalidRequest("model is too long.")
    is_stream = "stream" in fields and body[slice(*fields["stream"])].strip() == b"true"
    return Asked(body, content_type, _checked(model.decode("utf-8", "replace").strip()), is_stream,
                 _model_at=fields.get("model"), _quotes_model=False)


def _checked(model: str) -> str:
    """A model's name that can be written down."""
    if len(model) > _MODEL_CHARACTERS or not model.isprintable():
        raise InvalidRequest(f"model has to have at most {_MODEL_CHARACTERS} characters, all of"
                             " them printable.")
    return model


def _value(body: bytes, begin: int, end: int) -> Any:
    if end - begin > _VALUE_BYTES:
        raise InvalidRequest("model, stream, stream_options or background is too long.")
    try:
        return json.loads(body[begin:end])
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not valid JSON.") from error


def _after_brace(body: bytes) -> tuple[int, int]:
    place = body.index(b"{") + 1
    return place, place


def _too_large() -> TooLarge:
    return TooLarge(f"The body has more than {BODY_MOST_BYTES // 1024 // 1024} MiB.")


async def sliced(pieces: list[bytes | memoryview]) -> AsyncIterator[memoryview]:
    """The pieces, a little at a time, so that nothing is copied and the loop goes on."""
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(piece), _PIECE_BYTES):
            yield view[at:at + _PIECE_BYTES]
