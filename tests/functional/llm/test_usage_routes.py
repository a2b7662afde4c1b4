"""What accounts are told of their LLM calls: the list's total, a sandbox's usage, days and
models."""
from datetime import date, timedelta

import pytest

from models.database import connection, now
from models.usage import LlmTally
from services.llm import totals
from services.llm.callers import LlmCaller
from tests.rows.llm import FREE, PRICED, begin, finish
from tests.stack.edge import make_edge

DOLLAR_OF_OUTPUT = 100_000  # tokens of the priced model


@pytest.fixture(scope="module")
def proxied(postgres_url, redis_url, tmp_path_factory):
    """Both hosts, told that there is an LLM proxy."""
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"),
                         llm_config="/nowhere/llm.json", guest_secret="a key of the box")


def call(owner, sandbox_id=None, target=PRICED, complete=True, **tokens):
    caller = LlmCaller(owner.id, sandbox_id)
    assert finish(begin(caller, target), target, complete=complete, **tokens)


def move(owner, model, days):
    """Make what was used of a model today a few days older."""
    today = totals.day_of(now())
    with connection():
        LlmTally.update(day=today - timedelta(days=days)).where(
            (LlmTally.owner_id == owner.id) & (LlmTally.model == model)
            & (LlmTally.day == today)).execute()


def get(edge, owner, path):
    answer = edge.api.get(path, headers=edge.key(owner))
    assert answer.status_code == 200, answer.json
    return answer.json


def made(edge, owner):
    return edge.api.post("/v1/sandboxes", json={}, headers=edge.key(owner)).json["id"]


def test_the_list_says_what_all_calls_cost(proxied, edge):
    owner, other = proxied.newcomer(), proxied.newcomer()
    assert get(proxied, owner, "/v1/sandboxes")["totalLlmCost"] == 0
    call(owner, made(proxied, owner), output=DOLLAR_OF_OUTPUT)
    call(owner, "of-one-that-is-gone", output=DOLLAR_OF_OUTPUT // 2)
    call(owner, target=FREE, output=5)
    call(other, output=7)
    assert get(proxied, owner, "/v1/sandboxes?limit=1")["totalLlmCost"] == 1.5
    unconfigured = edge.newcomer()
    call(unconfigured, output=DOLLAR_OF_OUTPUT)
    assert get(edge, unconfigured, "/v1/sandboxes")["totalLlmCost"] is None


def test_a_sandbox_says_what_its_own_calls_used(proxied):
    owner = proxied.newcomer()
    one, two = made(proxied, owner), made(proxied, owner)
    call(owner, one, input=10, output=20, cached=30, cache_write=40, reasoning=5)
    call(owner, one, input=1, complete=False)
    call(owner, two, FREE, output=9)
    names = ("llmCalls", "llmInputTokens", "llmOutputTokens", "llmCachedTokens",
             "llmCacheWriteTokens")
    usage = get(proxied, owner, f"/v1/sandboxes/{one}/usage")
    assert [usage[name] for name in names] == [2, 11, 20, 30, 40]
    assert usage["llmCost"] == round(
        (11 * 1 + 20 * 10 + 30 * 0.1 + 40 * 2) / 1_000_000, 6)
    unpriced = get(proxied, owner, f"/v1/sandboxes/{two}/usage")
    assert (unpriced["llmOutputTokens"], unpriced["llmCost"]) == (9, None)
    none = get(proxied, owner, f"/v1/sandboxes/{made(proxied, owner)}/usage")
    assert (none["llmCalls"], none["llmCost"]) == (0, 0)


def test_days_and_models_newest_first_in_pages(proxied):
    owner = proxied.newcomer()
    for target, output in ((PRICED, 10), (FREE, 20), (PRICED, 30)):
        call(owner, target=target, output=output, complete=output != 30)
    move(owner, "priced", 3)
    call(owner, output=DOLLAR_OF_OUTPUT)
    today = totals.day_of(now())
    answer = get(proxied, owner, "/v1/usage/llm")
    assert [(entry["day"], entry["model"], entry["calls"], entry["incompleteCalls"],
             entry["unpricedCalls"], entry["outputTokens"], entry["cost"])
            for entry in answer["usage"]] == [
        (str(today), "priced", 1, 0, 0, DOLLAR_OF_OUTPUT, 1.0),
        (str(today), "unpriced", 1, 0, 1, 20, None),
        (str(today - timedelta(days=3)), "priced", 2, 1, 0, 40, 0.0004)]
    assert (answer["total"], answer["limit"], answer["offset"]) == (3, 100, 0)
    assert (answer["totalCalls"], answer["totalTokens"], answer["totalCost"]) == (
        4, DOLLAR_OF_OUTPUT + 60, 1.0004)
    page = get(proxied, owner, "/v1/usage/llm?limit=1&offset=1")
    assert page["usage"] == answer["usage"][1:2] and page["total"] == 3
    assert page["totalCost"] == answer["totalCost"], "of the range, not of the page"
    totals.sum_up()
    assert get(proxied, owner, "/v1/usage/llm") == answer


def test_a_range_of_days(proxied):
    owner = proxied.newcomer()
    call(owner, output=1)
    move(owner, "priced", 40)
    then = totals.day_of(now()) - timedelta(days=40)
    found = {
        "": 0, f"?from={then}": 1, f"?from={then}&to={then}": 1, f"?to={then}": 1,
        f"?to={then - timedelta(days=1)}": 0, "?from=0001-01-01": 1, "?to=0001-01-01": 0,
        f"?from={date.max}": 0,
    }
    for query, total in found.items():
        assert get(proxied, owner, f"/v1/usage/llm{query}")["total"] == total, query


@pytest.mark.parametrize(("query", "told"), [
    ("from=yesterday", "from"), ("to=2030-13-01", "to"), ("from=2030-01-01T00:00:00Z", "from"),
    ("from=2030-01-02&to=2030-01-01", "from: must not be after to"), ("limit=0", "limit"),
    ("day=2030-01-01", "day"),
])
def test_a_query_that_is_none_is_refused(proxied, owner, query, told):
    answer = proxied.api.get(f"/v1/usage/llm?{query}", headers=proxied.key(owner))
    assert answer.status_code == 400 and told in answer.json["error"]


def test_everybody_sees_their_own(proxied):
    owner, other = proxied.newcomer(), proxied.newcomer()
    call(owner, output=3)
    assert get(proxied, other, "/v1/usage/llm")["usage"] == []
