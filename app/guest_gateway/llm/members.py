"""Finds members of a JSON object by their bytes, so that some of them can be changed and the rest
is passed on as it came.

A body may have tens of megabytes, most of it images in base64. It is not built as values: only
quotes, brackets and, in the outermost object, commas and colons are looked at, and the event loop
gets its turn in between. Whether the rest is valid JSON is for the upstream to say.
"""
import asyncio
import json
import re
from dataclasses import dataclass, field

from services.errors import InvalidRequest

_OUTER, _INNER = re.compile(rb'["{}\[\],:]'), re.compile(rb'["{}\[\]]')
_SIGNS_MOST, _TURN, _DEPTH_MOST, _NAME_BYTES = 1_000_000, 5_000, 200, 200
# A longer text without a space near its begin is an image, a file, audio.
_WORDLESS_BYTES = 2048
_BACKSLASHES_MOST = 1000


@dataclass
class Members:
    """What was found: of each wanted name where its value begins and ends, and how many bytes of
    text the object has, without what is no language."""

    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    text_bytes: int = 0
    is_empty: bool = True


async def find_members(body: bytes, wanted: frozenset[str]) -> Members:
    """Find the wanted members of the object that `body` is; raises InvalidRequest if it is none, or
    has one of them twice."""
    walk = _Walk(body, wanted)
    while not walk.ended:
        walk.go_on(_TURN)
        await asyncio.sleep(0)
    return walk.members


class _Walk:
    """One walk through a body, a turn at a time."""

    def __init__(self, body: bytes, wanted: frozenset[str]) -> None:
        self.members, self.ended = Members(), False
        self._body, self._wanted = body, wanted
        self._at = self._depth = self._signs = 0
        self._text_at: int | None = None
        self._name: str | None = None
        self._value_at: int | None = None
        if body[:64].lstrip()[:1] != b"{":
            raise InvalidRequest("The body is not a JSON object.")

    def go_on(self, signs: int) -> None:
        """Walk on for so many signs, or to the end."""
        for _ in range(signs):
            if self._text_at is None:
                pattern = _OUTER if self._depth == 1 else _INNER
                match = pattern.search(self._body, self._at)
                if match is None:
                    raise InvalidRequest("The body is not valid JSON.")
                self._at = match.end()
                self._take(match[0])
            else:
                self._quote(self._text_at)
            if self.ended:
                return
        self._signs += signs
        if self._signs > _SIGNS_MOST:
            raise InvalidRequest("The body has too many values.")

    def _take(self, sign: bytes) -> None:
        if sign == b'"':
            self._text_at = self._at
        elif sign in b"{[":
            self._depth += 1
            if self._depth > _DEPTH_MOST:
                raise InvalidRequest("The body is nested too deeply.")
        elif sign in b"}]":
            self._depth -= 1
            if self._depth == 0:
                self._value_ends()
                self.ended = True
        elif sign == b":":
            self.members.is_empty = False
            if self._value_at is None:
                self._value_at = self._at
        else:
            self._value_ends()

    def _quote(self, begin: int) -> None:
        """Go to the next quote of a text that began at `begin`; it ends there unless it is
        escaped."""
        end = self._body.find(b'"', self._at)
        if end < 0:
            raise InvalidRequest("The body is not valid JSON.")
        self._at = end + 1
        before = self._body[max(begin, end - _BACKSLASHES_MOST):end]
        backslashes = len(before) - len(before.rstrip(b"\\"))
        if backslashes == _BACKSLASHES_MOST:
            raise InvalidRequest("The body is not valid JSON.")
        if backslashes % 2 == 0:
            self._text_at = None
            self._text_ends(begin, end - begin)

    def _text_ends(self, begin: int, length: int) -> None:
        if length < _WORDLESS_BYTES or b" " in self._body[begin:begin + _WORDLESS_BYTES]:
            self.members.text_bytes += length
        if self._depth == 1 and self._value_at is None:
            self._name = self._read_name(begin, length)

    def _read_name(self, begin: int, length: int) -> str | None:
        if length > _NAME_BYTES:
            return None
        try:
            return str(json.loads(self._body[begin - 1:begin + length + 1]))
        except ValueError as error:
            raise InvalidRequest("The body is not valid JSON.") from error

    def _value_ends(self) -> None:
        if self._name in self._wanted and self._value_at is not None:
            if self._name in self.members.found:
                raise InvalidRequest(f"The body has {self._name} twice.")
            self.members.found[self._name] = self._value_at, self._at - 1
        self._name = self._value_at = None
