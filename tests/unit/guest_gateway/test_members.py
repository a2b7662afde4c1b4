"""Members of a body by their bytes, against a parser of JSON; and what a hostile one costs."""
import asyncio
import json

import pytest

from app.guest_gateway.llm.endpoints import find_endpoint
from app.guest_gateway.llm.members import find_members
from app.guest_gateway.llm.request_body import understand
from services.errors import InvalidRequest

CHAT = find_endpoint("POST", "/v1/chat/completions", is_anthropic=False)
WANTED = frozenset({"model", "stream", "stream_options"})
OBJECTS = [
    {"model": "a"}, {"x": [1, {"model": "inner"}], "model": "a", "stream": True},
    {"model": "\"}{][:,\\", "stream_options": {"include_usage": False, "z": [1, 2]}},
    {"stream": False, "x": "\\\\\"", "y": {}, "z": [], "model": "\u20ac\U0001f600"},
    {"messages": [{"content": "say \"model\": \"b\", {\\"}], "n": -1.5e3, "model": None},
]


def read(body):
    return asyncio.run(find_members(body, WANTED))


@pytest.mark.parametrize("value", OBJECTS)
@pytest.mark.parametrize("form", [{}, {"indent": 3}, {"ensure_ascii": False},
                                  {"separators": (",", ":")}])
def test_the_same_members_as_a_parser_finds(value, form):
    body = json.dumps(value, **form).encode()
    found = {name: json.loads(body[slice(*place)]) for name, place in read(body).found.items()}
    assert found == {name: value[name] for name in WANTED & set(value)}


@pytest.mark.parametrize("value", OBJECTS)
def test_only_the_model_changes_and_the_wish_for_the_usage(value):
    for stream in (False, True):
        body = json.dumps({**value, "stream": stream}, indent=1).encode()
        if not isinstance(value.get("model"), (str, type(None))):
            continue
        asked = asyncio.run(understand(CHAT, body, ""))
        changed = json.loads(b"".join(asked.pieces("new \"name\"")))
        wish = {"stream_options": {**value.get("stream_options", {}), "include_usage": True}}
        assert changed == {**value, "stream": stream, "model": "new \"name\"",
                           **(wish if stream else {})}


def test_a_usage_that_the_caller_wants_is_not_taken_out():
    body = b'{"model": "a", "stream": true, "stream_options": {"include_usage": true}}'
    assert not asyncio.run(understand(CHAT, body, "")).adds_usage


@pytest.mark.parametrize("body", [
    b"", b"3", b"{", b'{"model"', b'{"model": "a"', b'{"a": "' + b"\\" * 2_000_000,
    b"{" + b"[" * 1000, b'{"model": "a", "model": "b"}', b'{"model": "a", "m\\u006fdel": "b"}',
    b'{"x": [' + b"0,[]," * 1_000_000, b'{"x": "' + b'\\"' * 2_000_000 + b'"}',
    b'{"x": "' + b"\\" * 2_000_001 + b'"}'])
def test_what_is_broken_or_hostile_is_refused_without_being_built(body):
    with pytest.raises(InvalidRequest):
        read(body)


def test_the_loop_has_its_turn_meanwhile():
    async def both():
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)
        other = asyncio.create_task(others())
        await find_members(b'{"x": [' + b'"a",' * 100_000 + b'0]}', WANTED)
        other.cancel()
        return turns
    assert asyncio.run(both()) > 30
