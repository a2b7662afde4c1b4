"""Upstreams that cannot be reached, say nothing or take nothing: the next one answers, and if there
is none the caller is told to come again; in the ledger stands who answered."""
import contextlib
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.database import connect, database
from tests.clients.guest_gateway import question, running_gateway
from tests.fakes.llm_upstream import KEY
from tests.fakes.odd_upstreams import OddUpstream, deaf, full, once, refusing_halfway, silent

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
AWAY = ("closed", "full", "silent", "deaf")
KEPT = {"ended": once(), "reset": once(reset=True), "all-reset": once(reset=True, together=3)}
PRICE = {"input": 1, "cachedInput": 1, "cacheWrite": 1, "output": 10}
# More than the kernel takes for an upstream that does not read.
LARGE = "data:image/png;base64," + "A" * 30_000_000


@pytest.fixture(scope="module")
def odd():
    """An upstream for each way of not answering, by its name."""
    with contextlib.ExitStack() as opened:
        made = {"closed": OddUpstream(backlog=None), "silent": OddUpstream(silent),
                "deaf": OddUpstream(deaf), "half": OddUpstream(refusing_halfway)} | {
            name: OddUpstream(serve) for name, serve in KEPT.items()}
        yield {name: opened.enter_context(one) for name, one in made.items()} | {
            "full": opened.enter_context(full())}


def config(upstream, odd):
    """Models of the names of the upstreams, those of `AWAY` also with one behind them that
    answers."""
    known = {"good": upstream, "impatient": upstream, **odd}
    made = [{"name": name, "kind": "openai", "url": one.url, "key": KEY, "connectS": 1,
             "silenceS": {**dict.fromkeys(AWAY, 1), "impatient": 2}.get(name, 60)}
            for name, one in known.items()]
    made.append({**made[1], "name": "impatient-too", "kind": "anthropic"})
    models = {each["name"]: [{"upstream": each["name"]}] for each in made}
    models |= {f"{name}-or-good": [{"upstream": name}, {"upstream": "good"}] for name in AWAY}
    models["none"] = [{"upstream": "closed"}, {"upstream": "silent"}]
    return {"upstreams": made, "models": models, "prices": dict.fromkeys(models, PRICE),
            "fallOver": {"restS": 0}}


@pytest.fixture(scope="module")
def gateway(sim_stack, upstreams, odd, tmp_path_factory):
    """Its process, and the file of what it says."""
    connect(sim_stack.settings.database_url, pool_size=5)
    directory = tmp_path_factory.mktemp("gateway")
    with running_gateway(sim_stack, config(upstreams[0], odd), directory) as running:
        yield running
    database.close_all()


def ask(asker, model, away):
    """A question that an upstream which is `away` so cannot take."""
    content = [{"type": "image_url", "image_url": {"url": LARGE}}] if away == "deaf" else "hello"
    return asker.chat(model, messages=[{"role": "user", "content": content}])


@pytest.mark.slow
@pytest.mark.parametrize("away", AWAY)
def test_the_next_upstream_answers(asker, upstream, log, away):
    before = log.read_text().count("an upstream does not answer")
    status, _, body = ask(asker, f"{away}-or-good", away)
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"].startswith("w0")
    assert len(upstream.seen) == 1
    row = asker.last_call()
    assert (row.upstream, row.model_used, row.status, row.complete) == (
        "good", f"{away}-or-good", 200, True)
    assert row.output_tokens == upstream.words and row.cost > 0
    assert log.read_text().count("an upstream does not answer") == before + 1


@pytest.mark.parametrize("away", [*AWAY, "none"])
def test_where_none_answers_the_caller_is_told_to_come_again_and_pays_nothing(
        asker, upstream, away):
    status, headers, body = ask(asker, away, away)
    assert (status, json.loads(body)["error"]["type"]) == (503, "overloaded_error")
    assert int(headers["Retry-After"]) > 0
    row = asker.last_call()
    assert (row.upstream, row.status) == ("silent" if away == "none" else away, None)
    assert (row.cost, row.input_tokens, row.output_tokens) == (0, 0, 0)
    assert upstream.seen == []


def test_one_that_breaks_its_refusal_off_refuses_all_the_same(asker, upstream):
    status, headers, body = asker.chat("half")
    assert (status, headers["Retry-After"]) == (429, "7") and b"half of a key" not in body
    assert json.loads(body)["error"]["type"] == "rate_limit_error"
    row = asker.last_call()
    assert (row.upstream, row.status, row.cost) == ("half", 429, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "model"), [
    (CHAT, "impatient"), (RESPONSES, "impatient"), (MESSAGES, "impatient-too")])
def test_one_that_falls_silent_on_the_way_is_broken_off_and_what_it_said_counted(
        asker, upstream, path, model):
    left = upstream.left_early
    link, answer = asker.begin(path, question(model, stream=True, silent_after=3))
    with contextlib.closing(link), pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    assert b"w2" in broken.value.partial and b"w3" not in broken.value.partial
    row = asker.last_call()
    assert (row.upstream, row.status, row.complete, row.output_tokens) == (model, 200, False, 3)
    assert row.cost > 0
    deadline = time.monotonic() + 20
    while upstream.left_early == left or upstream.under_way:
        assert time.monotonic() < deadline, "the call upstream is over"
        time.sleep(0.01)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_connection_that_is_no_more_says_nothing_of_its_upstream(asker, odd, name):
    """`all-reset` has had three at a time, so three are kept."""
    count = 3 if name == "all-reset" else 1
    with ThreadPoolExecutor(count) as pool:
        first = list(pool.map(lambda _: asker.chat(name), range(count)))
    assert [status for status, _, _ in first] == [200] * count
    assert odd[name].connections == count
    assert asker.chat(name)[0] == 200
    assert odd[name].connections == count + 1, "that one was answered on one of its own"
    row = asker.last_call()
    assert (row.upstream, row.status, row.complete, row.output_tokens) == (name, 200, True, 1)
