"""Bodies pass the edge while they come; nothing of them is stored there."""
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bin.stack import health
from tests.stack.waiting import eventually, until
from tests.tls.clients import connect, curl, read
from tests.tls.stored_bodies import stored_bodies

API, MIB = "localhost", 1024**2
# A little less than the edge holds a request for the API while nobody listens.
HELD_S = 9
# What is stored of a body is on the disk long before.
STORED_S = 0.5


def test_an_upload_is_passed_on_while_it_comes_and_never_stored(sim_stack, alice, sandbox):
    body_bytes, half = 24 * MIB, 12 * MIB
    head = (f"PUT /v1/sandboxes/{sandbox}/uploads/large HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {alice.api_key}\r\nContent-Length: {body_bytes}\r\n"
            "Connection: close\r\n\r\n")
    with connect(sim_stack, API) as link:
        link.sendall(head.encode() + bytes(half))
        assert not eventually(lambda: stored_bodies(sim_stack) != [], STORED_S)
        link.sendall(bytes(body_bytes - half))
        status, _, body = read(link.recv(65536))
    assert status == 201 and json.loads(body)["sizeBytes"] == body_bytes


@pytest.mark.parametrize(("host", "path"), [
    (API, "/v1/sandboxes"), ("auth.localhost", "/login"), ("shell.localhost", "/sandbox")])
def test_nor_is_what_a_stranger_sends(sim_stack, host, path):
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 60000\r\n\r\n"
    with connect(sim_stack, host) as link:
        link.sendall(head.encode() + bytes(50_000))
        assert not eventually(lambda: stored_bodies(sim_stack) != [], STORED_S)


@pytest.mark.parametrize("length", ["Content-Length: 8388608", "Transfer-Encoding: chunked"])
def test_who_may_not_upload_hears_it_before_the_body_has_come(sim_stack, sandbox, length):
    head = (f"PUT /v1/sandboxes/{sandbox}/uploads/large HTTP/1.1\r\nHost: localhost\r\n{length}"
            "\r\n\r\n")
    with connect(sim_stack, API) as link:
        link.sendall(head.encode() + b"8\r\n12345678\r\n")
        status, _, body = read(link.recv(65536))
    assert status == 401 and json.loads(body)["error"]


def test_a_body_without_a_length_is_not_sent_again_over_http_2(sim_stack):
    """While the API is away; what was taken of it is gone, and the rest would be waited for."""
    sim_stack.stop("api")
    try:
        answer = curl(sim_stack, API, "/v1/sandboxes", "--data", "{}", "--header",
                      "Content-Length:", "--max-time", "5")
    finally:
        sim_stack.start("api")
        sim_stack.wait_healthy()
    assert answer.stderr == "503 2" and json.loads(answer.stdout)["error"]


def sent_while_the_api_is_away(stack):
    """What requests without a body are answered over HTTP/2 that begin before the API is started,
    and for how many seconds it did not answer then."""
    empty = ("--header", "Content-Length: 0", "--header", "Content-Type: application/json")
    kinds = [(method, *given) for method in ("POST", "DELETE") for given in ((), empty)]
    stack.stop("api")
    with ThreadPoolExecutor(len(kinds)) as beside:
        try:
            sent = [beside.submit(curl, stack, API, "/v1/sandboxes/none", "--request", *kind)
                    for kind in kinds]
            time.sleep(0.5)
            assert not any(each.done() for each in sent)
        finally:
            began = time.monotonic()
            stack.start("api")
            until(lambda: health.answers(f"{stack.api_url}/health"))
        away_s = time.monotonic() - began
        return [each.result().stderr for each in sent], away_s


def test_what_has_no_body_waits_for_the_api_over_http_2(sim_stack):
    """The API listens again a second or two after it is started; they are held for ten."""
    answers, away_s = sent_while_the_api_is_away(sim_stack)
    if "503 2" in answers and away_s > HELD_S:
        answers, _ = sent_while_the_api_is_away(sim_stack)
    assert set(answers) <= {"401 2", "405 2"}
