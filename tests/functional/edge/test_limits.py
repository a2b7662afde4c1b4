"""What the edge refuses by itself has the error shape of everything else, and slow clients are
ended by it or by the process behind, whatever trickles."""
import json
import socket
import subprocess
import time

import pytest

from tests.stack.processes import impatient_api
from tests.stack.waiting import until
from tests.tls.clients import client, connect, read, talk
from tests.tls.reloaded import edge_with

MIB = 1024**2
API, IDENTITY, SHELL = "localhost", "auth.localhost", "shell.localhost"


@pytest.fixture(scope="module")
def impatient(sim_stack, tmp_path_factory):
    """The edge, which waits for seconds, before an API that waits for a second; the API's
    process."""
    with impatient_api(sim_stack, tmp_path_factory.mktemp("api")) as (process, values):
        with edge_with(sim_stack, **{**values, "SVC_HEAD_S": "4"}):
            yield process


@pytest.mark.parametrize("host", [API, IDENTITY, SHELL])
@pytest.mark.parametrize(("head", "status"), [
    (f"GET /{'x' * 20_000} HTTP/1.1\r\n", 414),
    (f"GET / HTTP/1.1\r\nX-Large: {'x' * 20_000}\r\n", 431),
    ("GET / HTTP/1.1\r\nbroken header\r\n", 400),
    ("GET / HTTP/7.9\r\n", 505),
    ("GET /_edge/error HTTP/1.1\r\n", 404),
])
def test_what_cannot_be_read_is_an_error_in_json(sim_stack, host, head, status):
    answer = talk(sim_stack, f"{head}Host: {host}\r\nConnection: close\r\n\r\n".encode(), host)
    found, headers, body = read(answer)
    assert found == status
    assert headers["Content-Type"] == "application/json" and json.loads(body)["error"]


def test_plain_http_is_told_that_this_is_https(sim_stack):
    with socket.create_connection(("127.0.0.1", sim_stack.settings.edge_port), timeout=10) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, _, body = read(link.recv(65536))
    assert status == 400 and "HTTPS" in json.loads(body)["error"]


@pytest.mark.parametrize(("host", "path", "length"), [
    (IDENTITY, "/login", 65 * 1024), (SHELL, "/x", 65 * 1024),
    (API, "/v1/sandboxes/x/uploads/f", 600 * MIB)])
def test_a_body_that_is_too_large_is_refused_before_it_comes(sim_stack, host, path, length):
    head = f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n"
    with connect(sim_stack, host) as link:
        link.sendall(head.encode())
        status, _, body = read(link.recv(65536))
    assert status == 413 and json.loads(body)["error"]


@pytest.mark.slow
@pytest.mark.parametrize("host", [API, IDENTITY])
def test_a_head_that_trickles_is_ended(sim_stack, impatient, host):
    with connect(sim_stack, host) as link:
        link.settimeout(0.2)
        link.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nX-Slow: ".encode())
        assert trickle(link, 15) == b""


def test_a_body_that_trickles_is_ended_in_all_and_told_so(sim_stack, impatient, alice):
    head = ("POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {alice.api_key}\r\nContent-Length: 1000\r\n\r\n")
    with connect(sim_stack, API) as link:
        link.settimeout(0.2)
        link.sendall(head.encode())
        status, _, body = read(trickle(link, 15))
    assert status == 408 and json.loads(body)["error"]


def trickle(link, patience_s):
    """A byte again and again, until the other side answers or hangs up: what it said."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            link.send(b"x")
            return link.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return b""
    raise AssertionError("it goes on for ever")


def test_who_vanishes_without_a_word_is_noticed(sim_stack):
    """The kernel asks a silent client for a sign of life: a connection that nobody holds any more
    would keep its sandbox awake."""
    port = sim_stack.settings.edge_port
    with connect(sim_stack, API) as link:
        filters = f"sport = :{port} and dport = :{link.getsockname()[1]}"
        until(lambda: "timer:(keepalive" in subprocess.run(
            ["ss", "-tnoH", filters], text=True, capture_output=True, check=True).stdout, 10)


@pytest.mark.slow
def test_a_process_that_is_away_is_503_with_a_time_to_try_again(sim_stack, impatient):
    impatient.kill()
    with client(sim_stack) as http:
        answer = http.get("/health")
    assert answer.status_code == 503 and answer.json()["error"]
    assert int(answer.headers["Retry-After"]) > 0
