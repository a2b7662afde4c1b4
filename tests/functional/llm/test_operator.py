"""`svc-admin llm ...` and the figures for Prometheus, on real rows."""
import json
import re

import pytest

from services.llm import metrics
from services.llm.callers import LlmCaller
from services.prometheus import text_of
from tests.rows.llm import FREE, PRICED, begin, finish, new_owner
from tests.stack.operator import run_operator

KEY = "sk-the-operators-own-key"


@pytest.fixture(scope="module")
def rows(fresh_rows):
    """Two accounts that used LLMs, and a call under way."""
    owners = new_owner(), new_owner()
    for owner, target, tokens in zip((owners[0], owners[0], owners[1]), (PRICED, FREE, PRICED),
                                     (100_000, 7, 50_000)):
        finish(begin(LlmCaller(owner.id), target), target, output=tokens)
    finish(begin(LlmCaller(owners[1].id)), status=502, complete=False)
    begin(LlmCaller(owners[1].id))
    return owners


@pytest.fixture
def run(rows, postgres_url, tmp_path):
    """Runs a command of `llm`, with a configuration that is good."""
    path = tmp_path / "llm.json"
    path.write_text(json.dumps({"upstreams": [
        {"name": "near", "kind": "openai", "url": "http://near.test", "key": KEY}]}))

    def call(*arguments, ok=True, config=path):
        code, printed, complaint = run_operator(
            {"SVC_DATABASE_URL": postgres_url, "SVC_LLM_CONFIG": str(config)}, "llm", *arguments)
        assert (code == 0) is ok and "Traceback" not in complaint, printed + complaint
        assert KEY not in printed + complaint
        return printed or complaint

    call.path = path
    return call


def test_usage_by_day_and_owner(run, rows):
    found = json.loads(run("usage", "--json"))
    assert [(entry["owner"], entry["calls"], entry["output_tokens"], entry["cost"],
             entry["unpriced_calls"], entry["incomplete_calls"]) for entry in found] == [
        (rows[0].email, 2, 100_007, 1.0, 1, 0), (rows[1].email, 2, 50_000, 0.5, 0, 1)]
    shown = run("usage", rows[1].email)
    assert rows[1].email in shown and "0.5000" in shown and rows[0].email not in shown
    assert "--days" in run("usage", "--days", "3000000", ok=False)


def test_status_says_how_the_proxy_does(run):
    shown = run("status")
    assert "upstreams near (openai); 0 models" in shown
    assert "open calls: 1, of them in nobody's hand: 0" in shown
    assert re.search(r"^near +3 +1 +1 ", shown, re.MULTILINE)
    told = json.loads(run("status", "--json"))
    assert told["state"]["open_calls"] == 1 and told["off"] == []


def test_status_says_what_is_wrong_with_the_file_and_ends_with_1(run):
    run.path.write_text('{"upstreams": [], "' + KEY)
    assert "CANNOT BE USED: SVC_LLM_CONFIG, llm.json: is not JSON" in run("status", ok=False)
    assert "none (SVC_LLM_CONFIG is empty)" in run("status", config="")


def test_the_switch_goes_off_and_on(run, rows):
    email = rows[0].email
    assert run("off") == run("off", "--owner", email, "--reason", "a leak") == "off\n"
    assert run("off", "--upstream", "near") == "off\n"
    assert text_of(metrics.families()).count("svc_llm_switched_off 3\n") == 1
    shown = run("status")
    assert "OFF: all\n" in shown and "OFF: upstream near\n" in shown
    assert f"OFF: owner {rows[0].id} a leak" in shown
    for arguments in ((), ("--owner", email), ("--upstream", "near")):
        assert run("on", *arguments) == "on\n"
        assert run("on", *arguments) == "it was not off\n"
    assert "OFF" not in run("status")
    assert "not both" in run("off", "--owner", email, "--upstream", "near", ok=False)
    assert "no account" in run("off", "--owner", "nobody@example.test", ok=False)


def test_only_an_upstream_that_there_is_is_switched_off(run):
    assert "has no upstream neer; it has near" in run("off", "--upstream", "neer", ok=False)
    assert run("off", "--upstream", "near") == "off\n"
    assert run("off", "--upstream", "near", config="") == "off\n", "its host may be another"
    run.path.write_text("{}")
    assert "off\n" in run("off", "--upstream", "near"), "the gateway may go on with the one before"
    assert run("on", "--upstream", "near", config="") == "on\n"


def test_prometheus_can_read_the_figures(rows):
    lines = text_of(metrics.families()).splitlines()
    form = re.compile(r"(# (HELP|TYPE) svc_llm_\w+ .+|svc_llm_\w+({[\w=\",]+})? [\d.]+)")
    assert all(form.fullmatch(line) for line in lines), lines
    for line in ("svc_llm_calls_total 4", 'svc_llm_tokens_total{kind="output"} 150007',
                 "svc_llm_cost_dollars_total 1.5", "svc_llm_open_calls 1",
                 'svc_llm_upstream_calls_last_hour{upstream="near",end="failed"} 1'):
        assert line in lines
