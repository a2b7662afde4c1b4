"""Bodies pass the edge while they come; nothing of them is stored there."""
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tls.clients import connect, curl, read

API, MIB = "localhost", 1024**2


def test_an_upload_is_passed_on_while_it_comes_and_never_stored(sim_stack, alice, sandbox):
    body_bytes, half = 24 * MIB, 12 * MIB
    head = (f"PUT /v1/sandboxes/{sandbox}/uploads/large HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {alice.api_key}\r\nContent-Length: {body_bytes}\r\n"
            "Connection: close\r\n\r\n")
    stored = sim_stack.site.data_dir / "edge" / "body"
    with connect(sim_stack, API) as link:
        link.sendall(head.encode() + bytes(half))
        time.sleep(0.5)
        assert stored.is_dir() and not [path for path in stored.rglob("*") if path.is_file()]
        link.sendall(bytes(body_bytes - half))
        status, _, body = read(link.recv(65536))
    assert status == 201 and json.loads(body)["sizeBytes"] == body_bytes


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


@pytest.mark.parametrize("headers", [
    (), ("Content-Length: 0", "Content-Type: application/json")])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_what_has_no_body_waits_for_the_api_over_http_2(sim_stack, method, headers):
    """The API listens again a second or two after it is started."""
    sim_stack.stop("api")
    given = [word for header in headers for word in ("--header", header)]
    with ThreadPoolExecutor(1) as beside:
        sent = beside.submit(curl, sim_stack, API, "/v1/sandboxes/none", "--request", method,
                             *given)
        try:
            time.sleep(0.2)
            assert not sent.done()
        finally:
            sim_stack.start("api")
        assert sent.result().stderr in ("401 2", "405 2")
