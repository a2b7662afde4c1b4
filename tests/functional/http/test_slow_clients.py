"""Clients that begin and do not go on, by the hundred, on the real servers: they hold nobody up and
are given up in time, whatever trickles."""
import contextlib
import select
import socket
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fakes.hostile_guest import DATA, RESULT, frame, point_at, serving
from tests.stack.processes import another_api, impatient_api
from tests.stack.raw_http import request as raw_request
from tests.stack.raw_http import statuses
from tests.stack.waiting import until

COUNT = 250  # on each host: 500 in all
HOSTS = {"api": "/openapi.json", "identity": "/.well-known/jwks.json"}
LOGIN = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SLOW = {
    "nothing": b"",
    "half a head": b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half a body": LOGIN + b'Content-Length: 100\r\n\r\n{"email":',
    "a large body announced": LOGIN + b"Content-Length: 100000\r\n\r\n{",
    "half a chunk": LOGIN + b'Transfer-Encoding: chunked\r\n\r\nff\r\n{"email":',
    "leave asked for a body": LOGIN + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
    "answered, and still there": b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "refused, and still there": b"< / HTTP/1.1\r\n\r\n",
}


def url_of(stack, host):
    return stack.api_url if host == "api" else stack.auth_url


def connect(url):
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


@pytest.mark.slow
@pytest.mark.parametrize("payload", SLOW.values(), ids=SLOW)
def test_hundreds_of_slow_clients_hold_nobody_up(sim_stack, payload):
    with contextlib.ExitStack() as slow:
        links = []
        for host in HOSTS:
            for _ in range(COUNT):
                links.append(slow.enter_context(connect(url_of(sim_stack, host))))
                links[-1].sendall(payload)
        for host, path in HOSTS.items():
            for _ in range(10):
                answer = httpx.get(url_of(sim_stack, host) + path, timeout=5, trust_env=False)
                assert answer.status_code == 200
        poller = select.poll()
        poller.register(links[-1], select.POLLRDHUP | select.POLLHUP)
        answered = payload.startswith(b"<") or b"close" in payload or b"100000" in payload
        assert answered or not poller.poll(0), "they had been given up already"


@pytest.fixture(scope="module")
def impatient(sim_stack, tmp_path_factory):
    """URL of an API process that waits for a second."""
    with impatient_api(sim_stack, tmp_path_factory.mktemp("api")) as (_, values):
        yield values["SVC_API_URL"]


def drip(url, payload):
    """Send `payload` byte by byte for as long as the server takes it; what it answers."""
    with connect(url) as link:
        answer = bytearray()

        def listen():
            with contextlib.suppress(OSError):
                while data := link.recv(65536):
                    answer.extend(data)

        listener = threading.Thread(target=listen)
        listener.start()
        for byte in payload:
            if not listener.is_alive():
                break
            with contextlib.suppress(OSError):
                link.sendall(bytes([byte]))
            time.sleep(0.1)
        listener.join(20)
        assert not listener.is_alive(), "the server goes on waiting"
        return statuses(bytes(answer))


@pytest.mark.slow
def test_a_head_that_trickles_is_given_up(impatient):
    assert drip(impatient, b"GET /health HTTP/1.1\r\nX: " + b"x" * 300) == [408]


def test_a_body_that_trickles_is_given_up(impatient, alice):
    head = raw_request(alice, more=b"Content-Length: 1000\r\n")
    link = connect(impatient)
    with link:
        link.sendall(head)
        end = time.monotonic() + 30
        answer = b""
        while not answer:
            assert time.monotonic() < end
            link.sendall(b" ")
            if select.select([link], [], [], 0.1)[0]:
                answer = link.recv(65536)
    assert statuses(answer) == [408]


@pytest.mark.parametrize("more", [b"Content-Length: 100000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_an_upload_that_trickles_is_given_up(impatient, alice, more):
    made = alice.create()["id"]
    path = f"/v1/sandboxes/{made}/uploads/x".encode()
    with connect(impatient) as link:
        link.sendall(raw_request(alice, method=b"PUT", path=path, more=more))
        end, answer = time.monotonic() + 30, b""
        while not answer:
            assert time.monotonic() < end
            link.sendall(b"1\r\nx\r\n" if b"chunked" in more else b"x")
            if select.select([link], [], [], 0.1)[0]:
                answer = link.recv(65536)
    assert statuses(answer) == [400]
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.mark.slow
def test_a_client_that_takes_nothing_loses_its_thread(impatient, sim_stack, alice):
    made, size = alice.create()["id"], 60 * 1024**2
    with serving() as guest:
        guest.reply = frame(DATA, b"x" * 1024**2) * 60 + frame(RESULT, {"sizeBytes": size})
        point_at(sim_stack, made, guest.server_address[1])
        path = f"/v1/sandboxes/{made}/files?path=/large".encode()
        with connect(impatient) as link:
            link.sendall(raw_request(alice, method=b"GET", path=path))
            until(lambda: guest.left)  # what reads from it has been given up
            received = 0
            with contextlib.suppress(OSError):
                while data := link.recv(1 << 20):
                    received += len(data)
    assert received < size, "it went on writing"
    alice.delete(f"/v1/sandboxes/{made}")


def test_pipelined_requests_and_slow_ones_on_kept_connections_are_answered(sim_stack):
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(sim_stack.api_url) as link:
        link.sendall(get * 3 + get[:10])
        time.sleep(0.3)
        link.sendall(get[10:-4] + b"\r\nConnection: close\r\n\r\n")
        received = b""
        while data := link.recv(65536):
            received += data
    assert statuses(received) == [200] * 4


def test_bodies_that_threads_read_leave_some_for_calls_that_never_wait(
        sim_stack, tmp_path, alice, bob):
    """As many as there are threads, of a route that takes no place otherwise."""
    threads = 8
    with another_api(sim_stack, tmp_path, SVC_API_THREADS=str(threads)) as (_, values), \
            contextlib.ExitStack() as slow:
        for _ in range(threads):
            link = slow.enter_context(connect(values["SVC_API_URL"]))
            link.sendall(raw_request(alice, more=b"Content-Length: 100000\r\n", body=b"{"))
        refused = select.poll()
        refused.register(link, select.POLLIN)
        assert refused.poll(20_000) and statuses(link.recv(65536)) == [503]
        listed = httpx.get(f"{values['SVC_API_URL']}/v1/sandboxes", timeout=20, trust_env=False,
                           headers={"Authorization": f"Bearer {bob.api_key}"})
        assert listed.status_code == 200


def test_leave_to_send_a_body_is_given_once_the_head_is_there(sim_stack, alice):
    head = raw_request(alice, more=b"Content-Length: 15\r\nExpect: 100-continue\r\n")
    with connect(sim_stack.api_url) as link:
        link.sendall(head)
        assert statuses(link.recv(65536)) == [100]
        link.sendall(b'{"ports":"none"')
        received = link.recv(65536)
        while 400 not in statuses(received):
            received += link.recv(65536)
