"""JSON bodies: how deep they may be, how many values they may have, and what that costs to find
out."""
import json
import tracemalloc

import pytest

from app.http.bodies.strict_json import parse
from services.errors import InvalidRequest

MIB = 1024 * 1024
# Of docs/contract.md.
LEVELS, SIGNS = 32, 20_000


@pytest.mark.parametrize("value", [
    {}, [], None, 5, "", 'a " \\ b', {"a": [{"b": "]}][,"}]}, ["ü", "\n", "\\", "\\\\\""],
    [{"path": "a" * 50, "content": "x" * 10_000, "mode": 420} for _ in range(1000)],
    {"cmd": "x", "args": ["-"] * 4096},
])
def test_sensible_bodies_are_read_as_they_are(value):
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False, indent=2).encode()) == value


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}"), ('[{"a":"[["},', "]")])
def test_the_depth_limit(opening, closing):
    fits = opening * LEVELS + "1" + closing * LEVELS
    if opening.startswith("[{"):
        fits = opening * (LEVELS - 1) + "1" + closing * (LEVELS - 1)
    parse(fits.encode())
    with pytest.raises(InvalidRequest, match="levels"):
        parse((opening + fits + closing).encode())


def test_brackets_inside_of_texts_do_not_count():
    assert parse(json.dumps("[" * 100_000).encode()) == "[" * 100_000


@pytest.mark.parametrize("body", [
    b"[" + b"[]," * (5 * MIB) + b"[]]", b"[" + b"1," * (8 * MIB) + b"1]",
    b'{"a":' + b'{"":0},' * (2 * MIB), b'""' * (8 * MIB), b"]" * (16 * MIB), b"," * (16 * MIB),
], ids=["lists", "numbers", "objects", "texts", "ends", "commas"])
def test_a_body_of_many_values_costs_no_more_memory_than_its_text(body):
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="too many values"):
            parse(body)
        assert tracemalloc.get_traced_memory()[1] < len(body) + MIB
    finally:
        tracemalloc.stop()


def test_the_limit_on_values_is_exact():
    fits = b"[" + b"1," * (SIGNS - 2) + b"1]"
    assert len(parse(fits)) == SIGNS - 1
    with pytest.raises(InvalidRequest, match="too many values"):
        parse(fits[:-1] + b",1]")


@pytest.mark.parametrize("text", ['"\\"\\"', '"a', '["\\', '["\\u12"]', '"' + '\\"' * 100_000])
def test_a_text_that_does_not_end_is_no_json(text):
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        parse(text.encode())
