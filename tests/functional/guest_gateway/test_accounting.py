"""The rows of calls end to end: real streams of a guest through the gateway, compared with what the
upstream says it sent."""
import os
import random
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.database import connect, connection, database
from models.usage import LlmCall
from services.llm import totals
from services.llm.totals import Figures
from tests.clients.guest_gateway import config_of, question, running_gateway
from tests.fakes.llm_upstream import CACHE_WRITE, CACHED, INPUT

STREAMS, WORDS = 50, 40
PATHS = {"/v1/chat/completions": "one", "/v1/responses": "one", "/v1/messages": "claude-x"}
# US dollars per million tokens.
PRICE = {"input": 1, "cachedInput": 0.1, "cacheWrite": 2, "output": 10}


@pytest.fixture(scope="module")
def gateway(sim_stack, upstreams, tmp_path_factory):
    """Runs a gateway whose models have a price."""
    directory = tmp_path_factory.mktemp("gateway")
    config = config_of(*upstreams) | {"prices": {"first-model": PRICE, "claude-x": PRICE}}
    return lambda: running_gateway(sim_stack, config, directory)


@pytest.fixture(scope="module")
def log(sim_stack, gateway):
    """What the gateway says."""
    connect(sim_stack.settings.database_url, pool_size=5)
    with gateway() as (_, path):
        yield path
    database.close_all()


def calls_of(sandbox_id):
    with connection():
        return list(LlmCall.select().where(LlmCall.sandbox_id == sandbox_id))


def eventually(found, patience_s=30):
    deadline = time.monotonic() + patience_s
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hear(asker, path, silent_after, **more):
    """Ask for a stream; leave it after as many words, or hear it to its end."""
    if silent_after is not None:
        more["silent_after"] = silent_after
    link, answer = asker.begin(path, question(PATHS[path], stream=True, **more))
    assert answer.status == 200
    if silent_after is None:
        answer.read()
        link.close()
        return
    while f'"w{silent_after - 1} "'.encode() not in answer.readline():
        pass
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    answer.close()


def test_fifty_streams_half_of_them_left_are_exact_to_the_token(asker, upstream):
    upstream.words, upstream.pause_s, said = WORDS, 0.005, upstream.said
    chance = random.Random(7)
    plan = [(chance.choice(list(PATHS)), chance.randint(1, WORDS - 1) if number % 2 else None)
            for number in range(STREAMS)]
    before = {row.id for row in calls_of(asker.sandbox_id)}
    with ThreadPoolExecutor(STREAMS) as pool:
        for done in [pool.submit(hear, asker, *each) for each in plan]:
            done.result()

    def ended():
        rows = [row for row in calls_of(asker.sandbox_id) if row.id not in before]
        return rows if len(rows) == STREAMS and all(row.ended_at for row in rows) else None

    eventually(ended)
    eventually(lambda: not upstream.under_way)
    rows = ended()
    whole, left = [row for row in rows if row.complete], [row for row in rows if not row.complete]
    assert sum(row.output_tokens for row in rows) == upstream.said - said
    assert sorted(row.output_tokens for row in left) == sorted(cut for _, cut in plan if cut)
    for row in whole:
        claude = row.protocol == "anthropic"
        assert (row.input_tokens, row.cached_tokens, row.cache_write_tokens, row.output_tokens,
                row.reasoning_tokens) == (INPUT, CACHED, CACHE_WRITE * claude, WORDS, not claude)
    for row in left:
        assert row.input_tokens == (INPUT if row.protocol == "anthropic" else row.estimated_input)
    for row in rows:
        assert row.cost == 100_000 * (10 * row.input_tokens + row.cached_tokens
                                      + 20 * row.cache_write_tokens + 100 * row.output_tokens)
    every = calls_of(asker.sandbox_id)
    sums = totals.of_sandbox(every[0].owner_id, asker.sandbox_id)
    assert sums == Figures(
        len(every), sum(not row.complete for row in every), 0,
        *(sum(int(getattr(row, name)) for row in every) for name in (
            "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
            "reasoning_tokens", "cost")))


@pytest.mark.parametrize(("most", "owed"), [(10**9, 4096), (777, 777)])
@pytest.mark.parametrize("path", PATHS)
def test_a_stream_that_reasons_counts_as_what_was_reserved_if_it_is_left_and_else_exactly(
        asker, upstream, path, most, owed):
    upstream.hidden = 20_000
    hear(asker, path, upstream.words, max_tokens=most)
    left = asker.last_call()
    assert (left.complete, left.output_tokens) == (False, owed)
    hear(asker, path, None, max_tokens=most)
    heard = asker.last_call()
    assert (heard.complete, heard.output_tokens) == (True, 20_000 + upstream.words)


@pytest.mark.slow
def test_what_a_killed_gateway_had_under_way_is_written_by_the_next(asker, upstream, log, gateway):
    links = [asker.begin(path, question(PATHS[path], stream=True, silent_after=words))
             for words, path in enumerate(PATHS, 3)]

    def open_calls():
        return [row for row in calls_of(asker.sandbox_id) if row.ended_at is None]

    eventually(lambda: sorted(row.output_tokens for row in open_calls()) == [3, 4, 5])
    ids = {row.id for row in open_calls()}
    os.kill(int((log.parent / "pid").read_text()), signal.SIGKILL)
    for link, _ in links:
        link.close()
    with gateway():
        eventually(lambda: not open_calls())
    swept = [row for row in calls_of(asker.sandbox_id) if row.id in ids]
    assert sorted((row.complete, row.swept, row.output_tokens) for row in swept) == [
        (False, True, words) for words in (3, 4, 5)]
    assert all(row.input_tokens == row.estimated_input and row.cost > 0 for row in swept)
