"""What is written of a call, however it ends: to the token where the upstream said so, by estimate
where it could not."""
import http.client
import socket
import struct
import time

import pytest

from tests.clients.guest_gateway import events, question
from tests.fakes.llm_upstream import CACHE_WRITE, CACHED, INPUT
from tests.stack.waiting import until

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
MODELS = {CHAT: "one", RESPONSES: "one", MESSAGES: "claude-x"}


def figures(row):
    return (row.complete, row.status, row.input_tokens, row.cached_tokens, row.cache_write_tokens,
            row.output_tokens, row.reasoning_tokens)


@pytest.mark.parametrize("path", MODELS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_upstream_s_own_count(asker, upstream, path, stream):
    upstream.words = 23
    assert asker.ask(path, question(MODELS[path], stream=stream))[0] == 200
    openai = path != MESSAGES
    assert figures(asker.last_call()) == (
        True, 200, INPUT, CACHED, 0 if openai else CACHE_WRITE, 23, 1 if openai else 0)


@pytest.mark.parametrize("path", MODELS)
def test_a_caller_who_leaves_ends_the_call_upstream_and_pays_what_it_heard(asker, upstream, path):
    upstream.words, upstream.pause_s = 1000, 0.05
    left = upstream.left_early
    link, answer = asker.begin(path, question(MODELS[path], stream=True))
    heard = b""
    while heard.count(b'w') < 3 or b"w2" not in heard:
        heard += answer.readline()
    began = time.monotonic()
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    answer.close()
    while upstream.left_early == left or upstream.under_way:
        assert time.monotonic() < began + 20
        time.sleep(0.01)
    row = asker.last_call()
    assert not row.complete and row.status == 200
    assert 3 <= row.output_tokens < 100
    if path == MESSAGES:
        assert row.input_tokens == INPUT, "that was said at once"
    else:
        assert row.input_tokens > 0


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("path", MODELS)
def test_an_upstream_that_breaks_off_breaks_the_answer_off(asker, upstream, path, size):
    """All of it comes at once, the end too, which is told by aiohttp before the rest is read."""
    upstream.words, upstream.cut_after = 9, 4
    link, answer = asker.begin(path, question(MODELS[path], text="a" * size, stream=True))
    with pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    link.close()
    assert b"w3" in broken.value.partial
    row = asker.last_call()
    assert (row.complete, row.output_tokens) == (False, 4)


def test_an_error_in_the_middle_is_passed_on(asker, upstream):
    upstream.words, upstream.error_after = 9, 4
    status, _, body = asker.ask(MESSAGES, question("claude-x", stream=True))
    assert status == 200 and "broken" in events(body)[-1]
    row = asker.last_call()
    assert (row.complete, row.output_tokens, row.input_tokens) == (False, 4, INPUT)


@pytest.mark.parametrize(("most", "owed"), [(777, 777), (10**9, 4096)])
def test_who_leaves_an_answer_that_says_its_usage_at_its_end_pays_what_was_reserved(
        asker, upstream, most, owed):
    upstream.words = 3_000_000
    link, answer = asker.begin(CHAT, question("one", max_tokens=most))
    assert b"w0" in answer.read(1 << 20)
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    answer.close()
    row = asker.last_call()
    assert (row.complete, row.status, row.output_tokens) == (False, 200, owed)


def test_who_leaves_before_an_answer_that_is_made_first_pays_what_was_reserved(asker, upstream):
    upstream.pause_s = 600
    link = asker.send(CHAT, question("one", max_tokens=777))
    until(lambda: upstream.seen, 20)
    link.close()
    row = asker.last_call()
    assert (row.complete, row.status, row.output_tokens) == (False, None, 777)


@pytest.mark.parametrize(("status", "answered"), [(400, 400), (302, 502)])
def test_what_was_refused_costs_nothing(asker, upstream, status, answered):
    upstream.refusals.append((status, {}))
    assert asker.chat()[0] == answered
    assert figures(asker.last_call()) == (True, status, 0, 0, 0, 0, 0)


def test_counting_tokens_and_listing_models_are_no_calls(asker, upstream):
    asker.chat()
    before = asker.last_call().id
    assert asker.ask(f"{MESSAGES}/count_tokens", question("claude-x"))[0] == 200
    assert asker.ask("/v1/models")[0] == 200
    assert asker.last_call().id == before


def test_a_caller_who_reads_nothing_holds_the_upstream_and_not_our_memory(asker, upstream):
    upstream.words = 200_000
    link, answer = asker.begin(CHAT, question(stream=True))
    time.sleep(2)
    assert upstream.under_way == 1, "nobody stores what nobody reads"
    link.close()
    answer.close()
