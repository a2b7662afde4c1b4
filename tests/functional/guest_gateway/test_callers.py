"""Who may ask, and what a hostile guest can take: nothing of another's, and little of all."""
import contextlib
import json
import time

import pytest

from app.guest_gateway.llm.proxy import OF_ONE_CALLER
from tests.clients.guest_gateway import question


def refused(answer):
    status, headers, body = answer
    error = json.loads(body)
    assert error["type"] == "error" and set(error["error"]) == {"type", "message", "code", "param"}
    return status, error["error"]["type"]


@pytest.mark.parametrize("secret", [
    "another's", "made up", "its id only", "x" * 200, "a.b", "%2e%2e"])
def test_a_wrong_secret_is_refused(askers, upstream, secret):
    one, other = askers
    secret = {"another's": other.secret, "made up": f"{one.sandbox_id}.{'0' * 32}",
              "its id only": one.sandbox_id}.get(secret, secret)
    answer = refused(one.ask("/v1/chat/completions", question(), secret=secret))
    assert answer in ((403, "permission_error"), (401, "authentication_error"))
    assert upstream.seen == []


def test_no_secret_is_401(asker, upstream):
    assert refused(asker.ask("/v1/models", secret="")) == (401, "authentication_error")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/health"), ("GET", "/v1/chat/completions"), ("POST", "/v1/files"),
    ("POST", "/v1/responses/../files"), ("POST", "//v1/messages"), ("GET", "/v1/models/../files")])
def test_nothing_else_is_there(asker, upstream, method, path):
    body = {} if method == "POST" else None
    assert refused(asker.ask(path, body)) == (404, "not_found_error")
    assert upstream.seen == []


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"[]", 400), (b"{}", 400), (b"{", 400), (b'{"model": 3, "x": 1}', 400),
    (b'{"model": "one", "m\\u006fdel": "both"}', 400), (b"{" * 300, 400),
    (b'{"x": "' + b"\\" * 4000 + b'"}', 400), (b'{"x":[' + b"0," * 10 + b'"', 400),
    (b'{"model": "a\\u0000"}', 400), (b'{"model": "\\ud800"}', 400),
    (b'{"model": "' + b"a" * 257 + b'"}', 400)])
def test_a_broken_body_is_400(asker, upstream, body, status):
    assert refused(asker.ask("/v1/chat/completions", body)) == (status, "invalid_request_error")
    assert upstream.seen == []


@pytest.mark.parametrize("part", [
    b'name="model"\r\n\r\na\0b', b'name="model"\r\n\r\n' + b"a" * 257])
def test_a_form_whose_model_cannot_be_written_down_is_400(asker, upstream, part):
    form = b"--limit\r\nContent-Disposition: form-data; " + part + b"\r\n--limit--\r\n"
    answer = asker.ask("/v1/audio/transcriptions", form, {
        "Content-Type": "multipart/form-data; boundary=limit"})
    assert refused(answer) == (400, "invalid_request_error")
    assert upstream.seen == []


def test_nothing_is_answered_in_the_background_where_nobody_counts_it(asker, upstream):
    answer = asker.ask("/v1/responses", question(background=True))
    assert refused(answer) == (400, "invalid_request_error") and b"background" in answer[2]
    assert upstream.seen == []
    assert asker.ask("/v1/responses", question(background=False))[0] == 200


def test_a_body_that_is_too_large_is_413_at_once(asker, upstream):
    with contextlib.closing(asker.connect()) as link:
        link.sendall(f"POST /s/{asker.secret}/v1/responses HTTP/1.1\r\nHost: x\r\n"
                     "Content-Length: 999999999\r\n\r\n".encode())
        assert link.recv(100).startswith(b"HTTP/1.1 413")


def test_one_guest_has_so_many_requests_at_a_time_and_the_others_theirs(askers, upstream):
    one, other = askers
    head = (f"POST /s/{one.secret}/v1/responses HTTP/1.1\r\nHost: x\r\n"
            "Content-Length: 100\r\n\r\n{").encode()
    with contextlib.ExitStack() as opened:
        for _ in range(OF_ONE_CALLER + 20):
            opened.enter_context(contextlib.closing(link := one.connect()))
            link.sendall(head)
        deadline = time.monotonic() + 20
        while (answer := one.chat())[0] == 200:
            assert time.monotonic() < deadline
        assert refused(answer) == (429, "rate_limit_error")
        assert other.chat()[0] == 200
    while one.chat()[0] != 200:
        assert time.monotonic() < deadline


def test_all_guests_of_an_account_share_the_memory_for_its_bodies(askers, upstream):
    one, other = askers
    most = 60 * 1024 * 1024
    head = (f"POST /s/{one.secret}/v1/responses HTTP/1.1\r\nHost: x\r\n"
            f"Content-Length: {most}\r\n\r\n").encode()
    large = {**question(), "user": "x" * (most // 6)}
    deadline = time.monotonic() + 20
    with contextlib.ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(contextlib.closing(link := one.connect()))
            link.sendall(head + bytes(most - 1))
        while (answer := other.ask("/v1/chat/completions", large))[0] == 200:
            assert time.monotonic() < deadline
        assert answer[0] == 503 and b"Too much is being sent" in answer[2]
        assert other.chat()[0] == 200, "a small one has room"
    while other.ask("/v1/chat/completions", large)[0] != 200:
        assert time.monotonic() < deadline


def test_heads_that_are_no_http_or_too_large_are_ended(asker, upstream):
    for junk in (b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
                 b"GET /" + b"a" * 70_000):
        with contextlib.closing(asker.connect()) as link:
            with contextlib.suppress(ConnectionError):
                link.sendall(junk)
                assert link.recv(12)[8:10] == b" 4"
    assert asker.chat()[0] == 200
