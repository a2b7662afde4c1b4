"""The usage in the bytes of an answer: found wherever the pieces are cut, and never made up."""
import json

import pytest

from app.guest_gateway.llm.usage_stream import StreamedUsage, WholeUsage
from services.llm.call_cost import Usage
from services.llm.configured.upstreams import Protocol

OPENAI, ANTHROPIC = Protocol.OPENAI, Protocol.ANTHROPIC
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
              "prompt_tokens_details": {"cached_tokens": 3},
              "completion_tokens_details": {"reasoning_tokens": 2}}


def event(data, name=None, end="\n"):
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}{end}" if name else "").encode() + f"data: {text}{end}{end}".encode()


def word(text):
    return event({"choices": [{"index": 0, "delta": {"content": text}}], "usage": None})


SHORT = word("h\u00e9llo \\\" \"usage\": 1 ") + word("w2")
CHAT = SHORT + event({"choices": [], "usage": CHAT_USAGE}) + event("[DONE]")
DROPPED = SHORT + event("[DONE]")
MESSAGES = (
    event({"type": "message_start", "message": {"usage": {
        "input_tokens": 10, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2,
        "output_tokens": 1}}}, "message_start")
    + event({"type": "ping"}, "ping")
    + event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}})
    + event({"type": "message_delta", "usage": {"output_tokens": 3}}, "message_delta")
    + event({"type": "message_delta", "usage": {"output_tokens": 7}}, "message_delta")
    + event({"type": "message_stop"}, "message_stop"))
RESPONSES = (
    event({"type": "response.output_text.delta", "delta": "hello"}, "response.output_text.delta")
    + event({"type": "response.completed", "response": {"usage": {
        "input_tokens": 10, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3}}}}))


def fed(reader, text, *cuts):
    out, at = b"", 0
    for cut in (*cuts, len(text)):
        out += reader.feed(text[at:cut])
        at = cut
    return out + reader.rest()


@pytest.mark.parametrize(("text", "protocol", "drops", "passed", "usage"), [
    (CHAT, OPENAI, True, DROPPED, Usage(7, 4, 3, 0, 2)),
    (CHAT, OPENAI, False, CHAT, Usage(7, 4, 3, 0, 2)),
    (CHAT.replace(b"\n", b"\r\n"), OPENAI, True, DROPPED.replace(b"\n", b"\r\n"),
     Usage(7, 4, 3, 0, 2)),
    (MESSAGES, ANTHROPIC, False, MESSAGES, Usage(10, 7, 3, 2, 0)),
    (RESPONSES, OPENAI, False, RESPONSES, Usage(7, 4, 3, 0, 0)),
], ids=["dropped", "wanted", "carriage returns", "messages", "responses"])
def test_a_stream_cut_anywhere(text, protocol, drops, passed, usage):
    for cut in range(1, len(text)):
        reader = StreamedUsage(protocol, drops_usage=drops)
        assert fed(reader, text, cut) == passed
        assert (reader.counted.complete, reader.counted.usage(99)) == (True, usage), cut
    reader = StreamedUsage(protocol, drops_usage=drops)
    assert fed(reader, text, *range(1, len(text))) == passed, "byte by byte"
    assert reader.counted.usage(99) == usage


def test_what_was_broken_off_is_estimated():
    reader = StreamedUsage(OPENAI)
    assert fed(reader, SHORT) == SHORT
    assert not reader.counted.complete and reader.counted.usage(99) == Usage(input=99, output=7)
    reader = StreamedUsage(ANTHROPIC)
    fed(reader, MESSAGES[:MESSAGES.index(b"message_delta")])
    assert (reader.counted.complete, reader.counted.usage(99)) == (False, Usage(10, 1, 3, 2, 0))


def delta(**said):
    return {"choices": [{"index": 0, "delta": said}]}


def responses_item(kind):
    return {"type": "response.output_item.added", "item": {"type": kind, "id": "1"}}


def block(kind):
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind}}


@pytest.mark.parametrize(("protocol", "sign", "rest", "told"), [
    (OPENAI, responses_item("reasoning"), RESPONSES, Usage(7, 4, 3)),
    (OPENAI, delta(reasoning="hm"), CHAT, Usage(7, 4, 3, 0, 2)),
    (OPENAI, delta(reasoning_content="hm"), CHAT, Usage(7, 4, 3, 0, 2)),
    (OPENAI, delta(reasoning_details=[{"type": "reasoning.encrypted"}]), CHAT,
     Usage(7, 4, 3, 0, 2)),
    (ANTHROPIC, block("thinking"), MESSAGES, Usage(10, 7, 3, 2)),
    (ANTHROPIC, block("redacted_thinking"), MESSAGES, Usage(10, 7, 3, 2)),
], ids=["responses", "reasoning", "reasoning_content", "details", "thinking", "redacted"])
def test_a_stream_that_reasons_counts_as_what_was_reserved_until_its_end(
        protocol, sign, rest, told):
    text = event(sign)
    for cut in range(1, len(text)):
        reader = StreamedUsage(protocol, reserved_output=50)
        for piece in (text[:cut], text[cut:]):
            assert reader.feed(piece) == piece
        assert (reader.counted.complete, reader.counted.usage(9)) == (False, Usage(9, 50)), cut
    reader.feed(event(delta(content="w" * 400)))
    assert reader.counted.usage(9).output >= 100, "what was shown is more"
    reader.feed(rest)
    assert (reader.counted.complete, reader.counted.usage(9)) == (True, told)


@pytest.mark.parametrize(("protocol", "sign"), [
    (ANTHROPIC, block("thinking")), (OPENAI, responses_item("reasoning")),
    (OPENAI, delta(reasoning="hm"))])
def test_one_that_its_upstream_ends_early_counts_as_what_it_shows(protocol, sign):
    reader = StreamedUsage(protocol, reserved_output=50)
    reader.feed(event(sign) + event({"type": "error", "error": {"type": "overloaded_error"}}))
    assert reader.rest() == b""
    assert not reader.counted.complete and reader.counted.usage(9).output < 5


@pytest.mark.parametrize("said", [
    delta(reasoning=None, reasoning_content="", reasoning_details=[]), delta(content="reasoning"),
    delta(content='"type": "thinking"'), block("text"), responses_item("message"),
    {"type": "response.created", "response": {
        "reasoning": {"effort": "low"}, "metadata": {"type": "reasoning", "reasoning": "much"}}},
    {"item": "reasoning", "content_block": ["thinking"], "choices": [None, {"delta": "thinking"}]},
    {"item": {"type": ["reasoning"]}, "choices": {"reasoning": 1}}, ["reasoning"], "{reasoning"])
def test_a_stream_that_shows_no_reasoning_counts_as_what_it_shows(said):
    reader = StreamedUsage(OPENAI, reserved_output=50)
    reader.feed(event(said) + SHORT)
    assert reader.counted.usage(9).output < 15


def test_reasoning_whose_stream_ends_without_a_usage_counts_as_what_it_shows():
    reader = StreamedUsage(OPENAI, reserved_output=5000)
    reader.feed(event(delta(reasoning="h" * 400, reasoning_content="h" * 400)) + DROPPED)
    assert (reader.counted.complete, reader.counted.usage(9)) == (False, Usage(9, 107))


def test_what_was_held_back_is_passed_on_at_the_end():
    reader = StreamedUsage(OPENAI, drops_usage=True)
    assert fed(reader, SHORT[:-1]) == SHORT[:-1]


@pytest.mark.parametrize("drops", [True, False])
def test_an_event_without_an_end_is_not_kept(drops):
    reader, passed = StreamedUsage(OPENAI, drops_usage=drops), 0
    piece = b"data: " + b"x" * 65530
    for _ in range(64):
        passed += len(reader.feed(piece))
        assert len(reader._line) + len(reader._held) + len(reader._ends) < 2 * 1024 * 1024
    assert passed + len(reader.rest()) == 64 * len(piece)
    assert fed(reader, b"\n\n" + CHAT)
    assert reader.counted.complete is True


@pytest.mark.parametrize("junk", [
    b"data: {\"usage\"\n\n", b"data: [\"usage\"]\n\n", b"data: {\"usage\": 3}\n\n",
    b"data: {\"usage\": {\"prompt_tokens\": \"many\", \"completion_tokens\": -5}}\n\n",
    b"data: {\"usage\": {\"prompt_tokens\": true, \"prompt_tokens_details\": [1]}}\n\n",
    b"data: " + b'{"usage":' * 5000 + b"\n\n", b"\xff\xfe\n\n", b"data: \"usage\" \xff\n\n"])
def test_junk_passes_and_counts_nothing(junk):
    reader = StreamedUsage(OPENAI)
    assert fed(reader, junk) == junk
    assert reader.counted.usage(0).total <= 1


def test_an_answer_that_is_one_object():
    text = json.dumps({"choices": [{"message": {"tool_calls": [
        {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}]}}], "usage": CHAT_USAGE}).encode()
    reader = WholeUsage(OPENAI)
    assert fed(reader, text, 5, 50) == text
    assert (reader.counted.complete, reader.counted.usage(99)) == (True, Usage(7, 4, 3, 0, 2))


@pytest.mark.parametrize(("status", "output"), [
    ("queued", 50), ("in_progress", 50), ("completed", 0), ([], 0)])
def test_an_answer_that_is_not_all_counts_as_what_was_reserved(status, output):
    reader = WholeUsage(OPENAI, reserved_output=50)
    fed(reader, json.dumps({"id": "resp_1", "status": status, "usage": None}).encode())
    assert (reader.counted.complete, reader.counted.usage(9)) == (False, Usage(9, output))


def long_event(kind, size):
    """An event of the Responses as OpenAI writes it, with a picture of so many bytes."""
    return event({"type": kind, "sequence_number": 9, "response": {
        "object": "response", "output": [{"type": "image_generation_call", "result": "A" * size}],
        "tools": [], "usage": {"input_tokens": 1000, "output_tokens": 6000}, "user": None}}, kind)


@pytest.mark.parametrize("size", [500_000, 1_500_000])
@pytest.mark.parametrize("drops", [True, False])
def test_the_usage_of_an_event_that_repeats_a_picture(size, drops):
    text = SHORT + long_event("response.completed", size)
    reader, passed = StreamedUsage(OPENAI, drops_usage=drops), b""
    for begin in range(0, len(text), 65536):
        passed += reader.feed(text[begin:begin + 65536])
        assert len(reader._line) + len(reader._ends) <= 1024 * 1024 + 65536
    assert passed + reader.rest() == text
    assert (reader.counted.complete, reader.counted.usage(99)) == (True, Usage(1000, 6000))
    assert not reader._ends, "the next line has ends of its own"


@pytest.mark.parametrize(("before", "after"), [
    (b"response.completed", b"response.created"), (b"data:", b"other:"), (b"usage", b"used"),
    (b"6000", b"")], ids=["another event", "no data", "no usage", "half a usage"])
def test_a_long_event_that_says_no_usage_is_estimated(before, after):
    text = SHORT + long_event("response.completed", 1_500_000).replace(before, after)
    reader = StreamedUsage(OPENAI)
    assert fed(reader, text, *range(65536, len(text), 65536)) == text
    assert (reader.counted.complete, reader.counted.usage(99)) == (False, Usage(99, 7))


def test_an_answer_too_large_to_be_built():
    text = json.dumps({"data": [{"b64_json": "A" * 9_000_000}], "usage": {
        "input_tokens": 10, "output_tokens": 4}}).encode()
    reader = WholeUsage(OPENAI)
    fed(reader, text, *range(0, len(text), 65536))
    assert reader.counted.usage(99) == Usage(10, 4) and len(reader._kept) < 100_000
