"""Bodies pass the edge while they come; nothing of them is stored there."""
import json
import time

import pytest

from tests.tls.clients import connect, read

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
