"""The same proxy on the API's host, for services: by the API's own port, which hands the connection
over, and by the edge."""
import contextlib
import json
import os
from pathlib import Path

import httpx
import pytest

from models.database import connection
from models.usage import LlmCall
from tests.clients.guest_gateway import events, question
from tests.stack.credentials import bearer

MESSAGES = "/v1/messages"


def last_row():
    with connection():
        return LlmCall.select().order_by(LlmCall.started_at.desc()).first()


def test_models_and_messages(http, upstream, alice_id):
    listed = http.get("/v1/models")
    assert [each["id"] for each in listed.json()["data"]] == ["both", "claude-x", "one"]
    alone = http.head("/v1/models")
    assert (alone.status_code, alone.text) == (200, "")
    assert alone.headers["Content-Length"] == listed.headers["Content-Length"]
    assert http.head("/v1/models", headers={"Authorization": ""}).status_code == 401
    answer = http.post(MESSAGES, json=question("claude-x"), headers={"X-On-Behalf-Of": alice_id})
    assert answer.json()["content"][0]["text"].startswith("w0 w1")
    row = last_row()
    assert (row.owner_id, row.sandbox_id) == (alice_id, "")


def test_an_error_of_ours_after_the_upstream_has_the_api_s_own_shape(http, upstream):
    upstream.refusals.append((401, {}))
    answer = http.post(MESSAGES, json=question("claude-x"))
    assert answer.status_code == 502 and "operator's key" in answer.json()["error"]
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("status", [400, 404, 413, 429, 529])
def test_what_an_upstream_refuses_has_it_too(http, upstream, status):
    upstream.refusals.append((status, {"Retry-After": "7", "Request-Id": "r-1"}))
    answer = http.post(MESSAGES, json=question("claude-x"))
    assert (answer.status_code, answer.json()) == (status, {"error": "not now"})
    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.headers["Retry-After"], answer.headers["Request-Id"]) == ("7", "r-1")


@pytest.mark.parametrize(("method", "path", "taken"), [
    ("POST", "/v1/models", "GET"), ("GET", MESSAGES, "POST"), ("DELETE", MESSAGES, "POST")])
def test_another_method_is_405_and_says_which(http, upstream, method, path, taken):
    answer = http.request(method, path)
    assert answer.status_code == 405 and taken in answer.headers["Allow"]
    assert set(answer.json()) == {"error"} and upstream.seen == []


def test_a_stream_comes_as_it_is_made_and_the_next_request_is_answered(http, upstream):
    upstream.words, upstream.pause_s = 40, 0.3
    with http.stream("POST", MESSAGES, json=question("claude-x", stream=True)) as answer:
        pieces = answer.iter_bytes()
        begun = b""
        while b"w0" not in begun:
            begun += next(pieces)
        assert upstream.under_way == 1, "the rest is still to come"
        upstream.pause_s = 0.0
        found = events(begun + b"".join(pieces))
    assert json.loads(found[-1])["type"] == "message_stop"
    assert http.get("/health").status_code == 200
    assert last_row().owner_id == "svc:tests"


def test_a_body_that_takes_many_pieces(http, upstream):
    said = "word " * 500_000
    assert http.post(MESSAGES, json=question("claude-x", text=said)).status_code == 200
    assert json.loads(upstream.seen[-1][3])["messages"][0]["content"] == said


@pytest.mark.parametrize(("headers", "status"), [
    ({"Authorization": ""}, 401), ({"Authorization": "Bearer nonsense"}, 401),
    ({"Authorization": "key"}, 403), ({"Authorization": "jwt"}, 403),
    ({"X-On-Behalf-Of": "nobody"}, 403), ({"X-On-Behalf-Of": ""}, 403)])
def test_others_are_refused_in_the_api_s_own_shape(http, upstream, alice, headers, status):
    secrets = {"key": alice.api_key, "jwt": alice.jwt}
    sent = {name: f"Bearer {secrets[value]}" if value in secrets else value
            for name, value in headers.items()}
    for answer in (http.get("/v1/models", headers=sent),
                   http.post(MESSAGES, json=question("claude-x"), headers=sent)):
        assert answer.status_code == status and list(answer.json()) == ["error"]
        assert isinstance(answer.json()["error"], str)
    assert upstream.seen == []


def test_what_is_a_guest_s_is_not_served_here(http, upstream, asker):
    for path in ("/v1/chat/completions", f"/s/{asker.secret}/v1/messages"):
        assert http.post(path, json=question()).status_code == 404
    assert upstream.seen == []


def sockets_of_the_api(stack):
    """How many sockets its processes have open."""
    master = stack.supervisor.pid("api")
    workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return sum(_is_socket(path) for pid in workers
               for path in Path(f"/proc/{pid}/fd").iterdir())


def _is_socket(path):
    """Not if it was closed meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(path).startswith("socket:")
    return False


def test_an_open_stream_is_nothing_of_the_api_s(sim_stack, token, upstream):
    upstream.words, upstream.pause_s = 1000, 0.05
    before, count, begun = sockets_of_the_api(sim_stack), 40, []
    with contextlib.ExitStack() as opened:
        for _ in range(count):
            http = opened.enter_context(httpx.Client(base_url=sim_stack.api_url, trust_env=False,
                                                     timeout=60, headers=bearer(token)))
            answer = opened.enter_context(http.stream(
                "POST", MESSAGES, json=question("claude-x", stream=True)))
            begun.append(answer.iter_raw())
            next(begun[-1])
        assert upstream.under_way == count
        assert sockets_of_the_api(sim_stack) < before + count / 2
