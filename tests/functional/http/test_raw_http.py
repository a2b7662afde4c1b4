"""What no HTTP library would send, straight to the real server: it answers or hangs up, and goes on
serving."""
import json

import pytest

from tests.stack.raw_http import request, statuses, talk


@pytest.mark.parametrize(("more", "body"), [
    (b"Transfer-Encoding: chunked\r\n", b"zz\r\nxx\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"5\r\n{}"),
    (b"Transfer-Encoding: chunked\r\n", b"-5\r\n{}\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffffff\r\n{}"),
    (b"Content-Length: 50\r\n", b'{"ports":'),
    (b"Content-Length: 50\r\n", b""),
    (b"Content-Length: 100000\r\n", b""),
    (b"Content-Length: -1\r\n", b"{}"),
    (b"Content-Length: x\r\n", b"{}"),
    (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"),
    (b"Content-Length: 99999999999999999999\r\n", b"{}"),
    (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n{}"),
    (b"Transfer-Encoding: gzip\r\n", b"{}"),
    (b"X-Svc-Node: a\0b\r\nContent-Length: 2\r\n", b"{}"),
    (b"X-Long: " + b"x" * 100_000 + b"\r\n", b""),
    (b"X-Many: 1\r\n" * 2000, b""),
])
def test_broken_requests_are_refused_and_make_nothing(sim_stack, alice, more, body):
    before = alice.get("/v1/sandboxes").json()["total"]
    answered = statuses(talk(sim_stack.api_url, request(alice, body=body, more=more)))
    assert all(400 <= status < 500 or status == 501 for status in answered), answered
    assert alice.get("/v1/sandboxes").json()["total"] == before


@pytest.mark.parametrize(
    "payload",
    [
        b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET " + b"/" * 20_000,
        b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/sandboxes HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_noise_is_never_a_500(sim_stack, alice, payload):
    for url in (sim_stack.api_url, sim_stack.auth_url):
        assert all(status < 500 or status in (501, 505) for status in statuses(talk(url, payload)))
    assert alice.get("/health").status_code == 200


def test_two_requests_on_one_connection_are_two_answers(sim_stack, alice):
    two = request(alice, method=b"GET") + request(
        alice, method=b"GET", path=b"/v1/sandboxes/unknown", more=b"Connection: close\r\n")
    assert statuses(talk(sim_stack.api_url, two, end=False)) == [200, 404]


def test_what_follows_a_refused_body_is_not_taken_for_a_request(sim_stack, alice):
    smuggled = b"DELETE /v1/sandboxes/x HTTP/1.1\r\nHost: x\r\n\r\n"
    payload = request(alice, body=smuggled, more=b"Content-Length: %d\r\n" % len(smuggled))
    assert statuses(talk(sim_stack.api_url, payload)) == [400]
    anonymous = payload.replace(b"Authorization", b"X-Nothing")
    assert statuses(talk(sim_stack.api_url, anonymous)) == [401]


@pytest.mark.parametrize(("payload", "status"), [
    (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    # The end of a head that is larger than the server reads need not have come.
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 70_000, 431),
    (b"GET /" + b"x" * 70_000, 414),
    (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    (b"<\"\x80> / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\n\r\n", 417),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: nonsense\r\n\r\n", 501),
])
@pytest.mark.parametrize("host", ["api_url", "auth_url"])
def test_what_the_server_itself_refuses_has_the_shape_of_all_errors(
    sim_stack, host, payload, status
):
    head, _, body = talk(getattr(sim_stack, host), payload, end=False).partition(b"\r\n\r\n")
    assert head.startswith(
        b"HTTP/1.1 %d " % status) and b"Content-Type: application/json\r\n" in head
    assert list(json.loads(body)) == ["error"] and f"Content-Length: {len(body)}".encode() in head
