"""The file of SVC_LLM_CONFIG: what it may hold, one sentence for what is wrong, and no key in any
of it."""
import copy
import json
import os
import traceback
from decimal import Decimal

import pytest

from bin.stack.site import ROOT
from config.settings import SettingsError
from services.llm.call_cost import COST_UNITS, Price
from services.llm.configured.config_file import load_config
from services.llm.configured.live_config import LiveConfig
from services.llm.configured.upstreams import Limits, Protocol, Target

KEY = "sk-the-operators-own-key"
PRICE = {"input": 0, "cachedInput": 0, "cacheWrite": 0, "output": 1}
WHOLE = {
    "upstreams": [
        {"name": "openai", "kind": "openai", "url": "https://api.example.test/v1/", "key": KEY},
        {"name": "anthropic", "kind": "anthropic", "url": "https://claude.example.test",
         "keyFile": "anthropic.key", "connectS": 2, "silenceS": 90.5},
        {"name": "near", "kind": "openai", "url": "http://127.0.0.1:8000/api/openai",
         "key": "near-key", "keyHeader": "api-key"},
    ],
    "models": {
        "fast": [{"upstream": "near", "model": "small"}, {"upstream": "openai", "model": "gpt-x"}],
        "claude-x": [{"upstream": "anthropic"}],
    },
    "defaultModel": "fast",
    "prices": {"near/small": {"input": 0, "cachedInput": 0, "cacheWrite": 0, "output": 0.000001}},
    "limits": {"default": {"requests": 100, "usd": 2.5}, "plans": {"free": {"requests": 1}},
               "owners": {"alice@example.test": {"usd": None, "tokens": 7}}},
    "fallOver": {"statuses": [500], "restS": 1, "tries": 2},
    "reserveOutputTokens": 100,
}


@pytest.fixture
def write(tmp_path):
    """Writes the file, and a key file beside it; returns its path."""
    (tmp_path / "anthropic.key").write_text("  anthropics-key\n")

    def put(content):
        path = tmp_path / "llm.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return put


def changed(*path, to=None, without=False):
    """WHOLE with one place of it changed."""
    content = copy.deepcopy(WHOLE)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    if without:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return content


def test_everything_it_says_is_read(write):
    config = load_config(write(WHOLE))
    openai, anthropic, near = config.upstreams.values()
    assert (openai.kind, openai.url, openai.key_headers()) == (
        Protocol.OPENAI, "https://api.example.test/v1", {"Authorization": f"Bearer {KEY}"})
    assert (anthropic.url, anthropic.key_headers(), anthropic.connect_s, anthropic.silence_s) == (
        "https://claude.example.test/v1", {"x-api-key": "anthropics-key"}, 2.0, 90.5)
    assert (near.url, near.key_headers()) == (
        "http://127.0.0.1:8000/api/openai", {"api-key": "near-key"})
    assert config.models == {"fast": (Target(near, "small"), Target(openai, "gpt-x")),
                             "claude-x": (Target(anthropic, "claude-x"),)}
    assert config.default_model == "fast" and config.prefixes == {"claude-": anthropic}
    assert config.prices["near/small"] == Price(0, 0, 0, 1)
    assert config.prices["gpt-5"].output == 10_000_000, "the default table stands behind it"
    dollar = COST_UNITS
    assert config.limits.default == Limits(100, None, int(Decimal("2.5") * dollar))
    assert config.limits.plans["free"] == Limits(1, None, int(Decimal("2.5") * dollar))
    assert config.limits.owners["alice@example.test"] == Limits(100, 7, None)
    assert (config.fall_over.statuses, config.fall_over.rest_s, config.fall_over.tries) == (
        {500}, 1.0, 2)
    assert config.reserve_output_tokens == 100


def test_an_owner_is_found_however_its_address_is_written(write):
    config = load_config(write(changed("limits", "owners", to={" Bob@Example.TEST": {"usd": 1}})))
    assert config.limits.owners["bob@example.test"].cost == COST_UNITS


def test_no_key_is_in_its_text(write):
    config = load_config(write(WHOLE))
    for shown in (repr(config), str(config), repr(config.upstreams), repr(config.models["fast"])):
        assert KEY not in shown and "near-key" not in shown and "anthropics-key" not in shown


@pytest.mark.parametrize(("content", "told"), [
    ("{", "is not JSON"), ('{"upstreams": "' + KEY, "is not JSON"), ("[]", "one JSON object"),
    ("[" * 100_000, "is not JSON"), ({}, "upstreams is missing"),
    ({"upstreams": []}, "upstreams must name at least one"),
    (changed("upstreams", 0, "name", without=True), "upstreams[0].name is missing"),
    (changed("upstreams", 0, "name", to="A B"), "upstreams[0].name must be 1 to 64"),
    (changed("upstreams", 1, "name", to="openai"), "upstreams[1].name is given twice"),
    (changed("upstreams", 0, "kind", to="gemini"), "upstreams[0].kind must be openai or anthropic"),
    (changed("upstreams", 0, "url", to=f"ftp://{KEY}"), "upstreams[0].url must be http(s)"),
    (changed("upstreams", 0, "url", to=f"https://u:{KEY}@h"), "upstreams[0].url must be http(s)"),
    (changed("upstreams", 0, "url", to=f"https://h/v1?key={KEY}"), "upstreams[0].url must be"),
    (changed("upstreams", 0, "url", to="https://h:99999/"), "upstreams[0].url must be"),
    (changed("upstreams", 0, "url", to=5), "upstreams[0].url has the wrong type"),
    (changed("upstreams", 0, "key", without=True), "upstreams[0] needs a key or a keyFile"),
    (changed("upstreams", 0, "keyFile", to="x"), "upstreams[0] needs a key or a keyFile"),
    (changed("upstreams", 0, "key", to=""), "upstreams[0].key is empty or no key"),
    (changed("upstreams", 0, "key", to=f"{KEY}\nX: y"), "upstreams[0].key is empty or no key"),
    (changed("upstreams", 1, "keyFile", to="gone.key"), "upstreams[1].keyFile cannot be read"),
    (changed("upstreams", 0, "keyHeader", to="a: b"), "upstreams[0].keyHeader is no name"),
    (changed("upstreams", 0, "connectS", to=0), "upstreams[0].connectS must be 1 to 60"),
    (changed("upstreams", 0, "secret", to=KEY), "upstreams[0].secret is no field of it"),
    (changed("upstream", to=[]), "upstream is no field of it"),
    (changed("models", "fast", to=[]), "models.fast must name 1 to 10 targets"),
    (changed("models", "fast", 0, "upstream", to=KEY), "models.fast names an upstream that is not"),
    (changed("prefixes", to={"x": KEY}), "prefixes.x names an upstream that is not"),
    (changed("prices", "near/small", "input", to=-1), "prices.near/small.input must be 0 to"),
    (changed("prices", "near/small", "input", to=0.0000001), "at most six decimals"),
    (changed("prices", "near/small", "input", to=True), "input must be a number"),
    (changed("prices", "near/small", "output", without=True), "output is missing"),
    (changed("prices", "fast", to=PRICE), "prices.fast would never count"),
    (changed("limits", "plans", to={"gold": {}}), "limits.plans names gold, which is no plan"),
    (changed("limits", "owners", "Alice@example.test", to={}), "names an address twice"),
    (changed("limits", "default", "requests", to=1.5), "requests must be a whole number"),
    (changed("limits", "default", "requests", to=-1), "requests must be 0 to"),
    (changed("fallOver", "statuses", to=[200]), "fallOver.statuses[0] must be 400 to 599"),
    (changed("fallOver", "tries", to=0), "fallOver.tries must be 1 to 10"),
    (changed("reserveOutputTokens", to="5"), "reserveOutputTokens must be a whole number"),
])
def test_what_is_wrong_is_told_by_its_place_without_a_value(write, content, told):
    with pytest.raises(SettingsError) as refused:
        load_config(write(content))
    text = str(refused.value)
    assert text.startswith("SVC_LLM_CONFIG, llm.json") and told in text, text
    assert KEY not in text and "\n" not in text
    assert KEY not in "".join(traceback.format_exception(refused.value)), "nor in a log of it"


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SettingsError, match=r"llm\.json: cannot be read \(No such file"):
        load_config(tmp_path / "llm.json")


def test_the_example_is_valid(tmp_path):
    example = json.loads((ROOT / "config" / "llm.example.json").read_text())
    for upstream in example["upstreams"]:
        (tmp_path / upstream["keyFile"]).write_text("key")
    path = tmp_path / "llm.json"
    path.write_text(json.dumps(example))
    assert len(load_config(path).upstreams) == len(example["upstreams"])


def test_a_changed_file_counts_at_the_next_look_and_a_bad_one_changes_nothing(write, caplog):
    path = write(WHOLE)
    live = LiveConfig(path)
    first = live.current
    assert not live.look() and live.current is first
    write(changed("defaultModel", to="claude-x"))
    assert live.look() and live.current.default_model == "claude-x"
    assert first.default_model == "fast", "whoever had it, has it"
    good = live.current
    write(changed("upstreams", 0, "name", to=KEY.upper()))
    assert not live.look() and live.current is good
    assert "keeps its old configuration" in caplog.text and "upstreams[0].name" in caplog.text
    assert KEY not in caplog.text and KEY.upper() not in caplog.text
    assert not live.look() and caplog.text.count("keeps its old") == 1, "told once"
    path.unlink()
    assert not live.look() and live.current is good
    write(WHOLE)
    assert live.look() and live.current.default_model == "fast"


def test_a_new_key_file_counts_too(write, tmp_path):
    live = LiveConfig(write(WHOLE))
    draft = tmp_path / "draft"
    draft.write_text("another-key")
    os.replace(draft, tmp_path / "anthropic.key")
    assert live.look() and live.current.upstreams["anthropic"].key == "another-key"
    assert not live.look() and live.reload()
