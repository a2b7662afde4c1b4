"""Reads what a call used out of the bytes of its answer as they pass.

1. A stream is cut at line ends, across the borders of pieces; only `data:` lines are looked at, and
only those with a usage in them are parsed. Of a line too long to be kept its beginning says which
event it is, and its end, if that is the last event, the usage: it repeats all that was said. 2.
OpenAI's chat sends its usage when asked, in an event of its own, which is taken out again where we
asked and the caller did not. 3. Once a stream shows that its model reasons, it counts as all that
was reserved until its end tells: it may show a summary of that, or nothing. 4. An answer that is
one JSON object is kept up to a limit and parsed at its end. 5. What is found is counted by
`told_or_estimated_usage.py`.
"""
import contextlib
import json
import re
from typing import Any

from app.guest_gateway.llm.told_or_estimated_usage import Counted
from services.llm.configured.upstreams import Protocol

_EVENT_MOST, _WHOLE_MOST = 1024 * 1024, 8 * 1024 * 1024
# Kept of what is longer (bytes); a stream's event says its type at its beginning.
_HEAD, _TAIL = 100, 64 * 1024
_TEXT = re.compile(
    rb'"(?:content|text|delta|thinking|partial_json|arguments|reasoning|reasoning_content)"'
    rb'\s*:\s*"((?:[^"\\]|\\.)+)"')
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_TYPE = re.compile(rb'"type"\s*:\s*"([^"]+)"')
# Events after which a stream has said everything.
_LAST = {"message_stop", "response.completed", "response.incomplete", "response.failed"}
# Where an event of reasoning says so: the type of an item of the Responses or of a block of the
# Messages, and what a chat's delta has. Upstreams put these there empty, too.
_REASONING_TYPES = ("reasoning", "thinking", "redacted_thinking")
_REASONING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details")
# What an answer says of itself that is not all: the upstream goes on, and tells us no more of it.
_UNDER_WAY = ("queued", "in_progress")


class StreamedUsage:
    """Of a stream of events; from the first that shows reasoning until its end it counts as
    `reserved_output` tokens. `drops_usage` takes the event of the usage out."""

    def __init__(self, protocol: Protocol, reserved_output: int = 0, *,
                 drops_usage: bool = False) -> None:
        self.counted = Counted(protocol)
        # 0 once it is in `counted`: nobody looks for reasoning any more.
        self._reserved_output = reserved_output
        self._drops = drops_usage
        self._line = bytearray()
        self._held = bytearray()
        self._is_usage = False
        self._skipping = False
        # The beginning and the end of a line that is skipped.
        self._ends = bytearray()

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes of the answer; gives those to pass on."""
        out = bytearray()
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            out += self._line_ends(piece[begin:end + 1])
            begin = end + 1
        self._keep(piece[begin:])
        if not self._drops:
            return piece
        if self._skipping or len(self._held) + len(self._line) > _EVENT_MOST:
            out += self._flush()
        return bytes(out)

    def rest(self) -> bytes:
        """What was held back, at the end of the answer. Where the upstream ends it nobody has left,
        whatever is missing."""
        self.counted.reserved_output = 0
        return bytes(self._flush()) if self._drops else b""

    def _keep(self, piece: bytes) -> None:
        """The beginning of a line. A line without an end is not looked at."""
        self._line += piece
        if not self._drops and (self._skipping or len(self._line) > _EVENT_MOST):
            self._skip()

    def _skip(self) -> None:
        self._skipping = True
        self._ends += self._line
        self._line.clear()
        del self._ends[_HEAD:-_TAIL]

    def _line_ends(self, piece: bytes) -> bytes:
        line = bytes(self._line) + piece if self._line else piece
        self._line.clear()
        skipped, self._skipping = self._skipping, False
        if skipped:
            self._look_at_ends(line)
        elif line.startswith(b"data:"):
            self._look(line[5:].strip())
        if not self._drops:
            return b""
        self._held += line
        if line.strip():
            return b""
        event, self._held = bytes(self._held), bytearray()
        dropped, self._is_usage = self._is_usage, False
        return b"" if dropped else event

    def _flush(self) -> bytes:
        held = bytes(self._held + self._line)
        self._held.clear()
        self._skip()
        return held

    def _look(self, data: bytes) -> None:
        counted = self.counted
        if texts := _TEXT.findall(data):
            counted.events += 1
            # Upstreams say reasoning under two names at once.
            counted.text_bytes += sum(map(len, set(texts)))
        if data == b"[DONE]":
            counted.ends()
        elif b'"usage"' in data or b'"message_stop"' in data or self._may_show_reasoning(data):
            self._read(data)

    def _may_show_reasoning(self, data: bytes) -> bool:
        """Whether it is worth parsing for the first sign of it."""
        return self._reserved_output > 0 and (b"reasoning" in data or b"thinking" in data)

    def _look_at_ends(self, rest: bytes) -> None:
        """Of a skipped line, whose last bytes are `rest`. Only that of a last event has a usage:
        others may repeat what the caller has asked, with something of that name in it."""
        ends, self._ends = bytes(self._ends + rest), bytearray()
        kind = _TYPE.search(ends[:_HEAD]) if ends.startswith(b"data:") else None
        if kind is None or kind[1].decode("utf-8", "replace") not in _LAST:
            return
        with contextlib.suppress(ValueError, RecursionError):
            self.counted.take(_last_usage(ends[_HEAD:][-_TAIL:]))
        self.counted.ends()

    def _read(self, data: bytes) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        counted, kind = self.counted, event.get("type")
        if self._reserved_output and _shows_reasoning(event):
            counted.reserved_output, self._reserved_output = self._reserved_output, 0
        for part in (event, event.get("message"), event.get("response")):
            if isinstance(part, dict):
                counted.take(part.get("usage"))
        if kind in _LAST or (kind is None and isinstance(event.get("usage"), dict)):
            counted.ends()
        self._is_usage = event.get("choices") == [] and isinstance(event.get("usage"), dict)


class WholeUsage:
    """Of an answer that is one JSON object; until its end it counts as `reserved_output` tokens."""

    def __init__(self, protocol: Protocol, reserved_output: int = 0) -> None:
        self.counted = Counted(protocol)
        self.counted.reserved_output = reserved_output
        self._kept = bytearray()
        self._is_tail = False

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes of the answer; gives them back."""
        self._kept += piece
        if len(self._kept) > _WHOLE_MOST or self._is_tail:
            self._is_tail = True
            del self._kept[:-_TAIL]
        return piece

    def rest(self) -> bytes:
        """Called at the end of the answer: then the usage is there."""
        reserved, self.counted.reserved_output = self.counted.reserved_output, 0
        try:
            answer = ({"usage": _last_usage(self._kept)} if self._is_tail
                      else json.loads(self._kept))
            self.counted.take(answer.get("usage"))
            if not self.counted.is_known and answer.get("status") in _UNDER_WAY:
                self.counted.reserved_output = reserved
        except (ValueError, RecursionError, AttributeError):
            pass
        self.counted.complete = self.counted.is_known
        if not self.counted.is_known:
            self.counted.text_bytes = sum(map(len, _TEXT.findall(self._kept)))
        return b""


class UnseenUsage:
    """Of an answer that is no text, such as audio, and says no usage."""

    def __init__(self) -> None:
        self.counted = Counted(Protocol.OPENAI)

    def feed(self, piece: bytes) -> bytes:
        """Gives the bytes back."""
        return piece

    def rest(self) -> bytes:
        """Nothing."""
        return b""


def _shows_reasoning(event: dict[str, Any]) -> bool:
    for part in (event.get("item"), event.get("content_block")):
        if isinstance(part, dict) and part.get("type") in _REASONING_TYPES:
            return True
    choices = event.get("choices")
    deltas = [choice.get("delta") for choice in choices if isinstance(choice, dict)] \
        if isinstance(choices, list) else []
    return any(delta.get(name) for delta in deltas if isinstance(delta, dict)
               for name in _REASONING_FIELDS)


def _last_usage(tail: bytes | bytearray) -> Any:
    """Of what is too large to be built, such as images, the last usage in its last bytes. Raises
    ValueError if there is none."""
    found = [match.end() for match in _USAGE.finditer(tail)]
    text = tail[found[-1]:].decode("utf-8", "replace") if found else ""
    return json.JSONDecoder().raw_decode(text)[0]
