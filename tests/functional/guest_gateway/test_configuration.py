"""A running gateway takes a new configuration without dropping a stream, and shows its figures to
this host only."""
import contextlib
import http.client
import json
import os
import signal
import time
from urllib.request import urlopen

import pytest

from services.llm import switches
from services.llm.switches import Scope
from tests.clients.guest_gateway import MODELS, config_of, question
from tests.stack.waiting import until

PRICES = {"first-model": {"input": 1, "cachedInput": 1, "cacheWrite": 1, "output": 1}}


def write(log, content):
    """Put a new file in the place of the configuration."""
    draft = log.parent / "draft"
    draft.write_text(content if isinstance(content, str) else json.dumps(content))
    os.replace(draft, log.parent / "llm.json")


def config(upstreams, **models):
    return config_of(*upstreams) | {"models": MODELS | models}


def model_asked_for(asker, upstream, model, wanted, patience_s=15):
    """Ask until the upstream is asked for `wanted`."""
    deadline = time.monotonic() + patience_s
    while True:
        asker.chat(model)
        seen = json.loads(upstream.seen[-1][3])["model"]
        if seen == wanted:
            return True
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


@pytest.mark.slow
def test_a_changed_file_counts_within_seconds_and_drops_no_stream(asker, upstream, upstreams, log):
    upstream.words, upstream.pause_s = 100, 0.05
    link, answer = asker.begin("/v1/chat/completions", question(stream=True))
    answer.readline()
    upstream.pause_s = 0.02
    write(log, config(upstreams, new=[{"upstream": "first", "model": "renamed"}]))
    assert model_asked_for(asker, upstream, "new", "renamed")
    write(log, '{"upstreams": [')
    deadline = time.monotonic() + 15
    while "keeps its old configuration" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert model_asked_for(asker, upstream, "new", "renamed"), "the old one holds"
    assert answer.read().rstrip().endswith(b"data: [DONE]")
    link.close()
    write(log, config(upstreams))
    assert model_asked_for(asker, upstream, "new", "new"), "passed on under its own name"


def test_a_signal_has_it_read_again(asker, upstream, log):
    before = log.read_text().count("has a new configuration")
    os.kill(int((log.parent / "pid").read_text()), signal.SIGHUP)
    deadline = time.monotonic() + 15
    while log.read_text().count("has a new configuration") == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert asker.chat()[0] == 200


def becomes(asker, status, patience_s=15):
    """The first answer with this status."""
    deadline = time.monotonic() + patience_s
    while (answer := asker.chat())[0] != status:
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    return answer


@pytest.mark.slow
def test_the_list_of_an_upstream_has_a_head_of_its_own(asker, upstream, upstreams, log):
    """Where the configuration has none; the connection goes on after it."""
    write(log, config_of(*upstreams) | {"models": {}})
    until(lambda: b"upstreams-own" in asker.ask("/v1/models")[2])
    with contextlib.closing(http.client.HTTPConnection("gateway")) as link:
        link.sock = asker.connect()
        for method, has_body in (("HEAD", False), ("GET", True)):
            link.request(method, f"/s/{asker.secret}/v1/models")
            answer = link.getresponse()
            assert (answer.status, b"upstreams-own" in answer.read()) == (200, has_body)
    write(log, config(upstreams))
    until(lambda: b"claude-x" in asker.ask("/v1/models", None, {"anthropic-version": "1"})[2])


@pytest.mark.slow
def test_no_other_place_of_an_upstream_is_asked_by_way_of_its_models(
        asker, upstream, upstreams, log):
    write(log, config_of(*upstreams) | {"models": {}})
    until(lambda: b"upstreams-own" in asker.ask("/v1/models/new-one")[2])
    before = len(upstream.seen)
    for path in ("/models/../chat/completions?limit=100", "/models/a/../../files",
                 "/models/%2e%2e/files"):
        for version in ("", "/v1"):
            assert asker.ask(version + path)[0] == 404
    assert len(upstream.seen) == before
    assert asker.ask("/v1/models?limit=2")[0] == 200
    assert [path for _, path, _, _ in upstream.seen[before:]] == ["/v1/models?limit=2"]
    write(log, config(upstreams))
    until(lambda: b"both" in asker.ask("/v1/models")[2])


@pytest.mark.slow
def test_limits_and_the_switch_reach_the_guest(asker, upstream, upstreams, log):
    asker.chat()
    for limit, status, words in (({"requests": 1}, 429, "1 calls"),
                                 ({"tokens": 1}, 429, "1 tokens"),
                                 ({"usd": 0}, 402, "0.00 US dollars")):
        write(log, config(upstreams) | {"limits": {"default": limit}, "prices": PRICES})
        _, headers, body = becomes(asker, status)
        assert words in json.loads(body)["error"]["message"]
        assert 0 < int(headers["Retry-After"]) <= 24 * 3600 + 1
        write(log, config(upstreams))
        becomes(asker, 200)
    write(log, config(upstreams) | {"limits": {"default": {"usd": 100}}})
    assert "no price" in json.loads(becomes(asker, 403)[2])["error"]["message"]
    write(log, config(upstreams) | {"limits": {"default": {"usd": 100}}, "prices": PRICES})
    becomes(asker, 200)
    write(log, config(upstreams))
    switches.switch_off(Scope.ALL, reason="a test")
    try:
        _, headers, body = becomes(asker, 503)
        assert "The operator has switched" in json.loads(body)["error"]["message"]
        before = len(upstream.seen)
        assert asker.chat()[0] == 503 and len(upstream.seen) == before
    finally:
        switches.switch_on(Scope.ALL)
    becomes(asker, 200)


def test_the_figures_are_for_this_host_only(asker, upstream, sim_stack):
    asker.chat()
    asker.last_call()
    port = sim_stack.settings.guest_gateway_port

    def shown():
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            assert answer.headers.get_content_type() == "text/plain"
            return answer.read().decode()

    assert int(shown().partition("\nsvc_llm_calls_total ")[2].split()[0]) > 0
    until(lambda: "svc_llm_open_calls 0\n" in shown())  # those of the tests above have ended, too
    node = f'svc_stopped_machines{{node="{sim_stack.settings.node_id}",kind='
    until(lambda: all(f'{node}"{kind}"}} 0\n' in shown() for kind in ("kept", "spares")))
    for secret in ("", None):
        status, _, body = asker.ask("/metrics", secret=secret)
        assert status in (401, 403, 404) and b"svc_" not in body
