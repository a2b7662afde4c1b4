"""What passes between a browser and a sandbox through the edge, awake and from asleep alike."""
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.gateway.open_connections import open_connections
from guest.agent.protocol import AGENT_PORT
from tests.clients.in_turn import InTurn
from tests.stack.database import query
from tests.stack.memory import Watch
from tests.stack.previews import GUEST_PORT, Preview, idle_at
from tests.stack.waiting import eventually, until
from tests.tls.clients import connect, curl
from tests.tls.stored_bodies import stored_bodies

STATES = pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])
# May not be sent twice. Of MOVE nginx knows nothing.
ONCE = pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "MOVE"])


def prepare(preview, asleep):
    if asleep:
        preview.sleep()


@STATES
def test_a_page(preview, asleep):
    prepare(preview, asleep)
    answer = preview.get()
    assert answer.status_code == 200 and "Hello from the sandbox" in answer.text
    assert preview.status() == "running"


@STATES
def test_a_post_and_a_put_come_back_whole(preview, asleep):
    prepare(preview, asleep)
    assert preview.post("/", content=b"some text").text == "some text"
    prepare(preview, asleep)
    with preview.client() as http:
        assert http.put("/", content=bytes(5_000_000)).text == "5000000 bytes"


@ONCE
@STATES
def test_what_may_not_be_sent_twice_is_sent_once(preview, served, method, asleep):
    """Although nobody has answered."""
    prepare(preview, asleep)
    with preview.client() as http:
        cut = http.request(method, "/cut?id=once")
    assert cut.status_code == 503 and served.server.counts["once"] == 1


@STATES
def test_a_body_without_a_length(preview, asleep):
    prepare(preview, asleep)

    def pieces():
        for _ in range(4):
            yield b"piece "
            time.sleep(0.05)
    assert preview.post("/", content=pieces()).text == "piece " * 4


@STATES
def test_a_chunked_answer(preview, asleep):
    prepare(preview, asleep)
    assert preview.get("/chunked?n=500").text == "".join(f"{n}." for n in range(500))


@STATES
def test_events_come_as_they_are_sent(preview, served, asleep):
    prepare(preview, asleep)
    with preview.client() as http, http.stream("GET", "/events?held=1") as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert next(lines) == "data: event-0", "the others are still to come"
        served.server.go_on.set()
        assert list(lines) == ["data: event-1", "data: event-2"]
    served.server.go_on.clear()


@STATES
def test_a_websocket_echoes(preview, asleep):
    prepare(preview, asleep)
    link = preview.socket()
    for text in ("one", "two", "x" * 60_000):
        link.send(text)
        assert link.recv() == text
    link.close()


@STATES
def test_an_answer_that_does_not_wait_for_the_body(preview, asleep):
    prepare(preview, asleep)
    assert preview.post("/early", content=b"x" * 1000).status_code == 413


@STATES
def test_an_answer_that_comes_while_a_large_body_is_sent(preview, asleep):
    for _ in range(3):  # one alone may arrive by luck
        prepare(preview, asleep)
        answer = preview.post("/early?drained=1", content=bytes(20_000_000))
        assert (answer.status_code, answer.text) == (413, "no more of that")


@STATES
def test_a_body_that_waits_to_be_asked_for(preview, asleep):
    prepare(preview, asleep)
    answer = preview.post("/", content=b"after 100", headers={"Expect": "100-continue"})
    assert answer.status_code == 200 and answer.text == "after 100"


@STATES
def test_a_head_request_and_one_that_is_not_found(preview, asleep):
    prepare(preview, asleep)
    with preview.client() as http:
        answer = http.head("/bytes?n=7")
        assert answer.headers["Content-Length"] == "7" and answer.content == b""
        assert http.get("/nowhere").status_code == 404


@STATES
def test_the_server_is_told_who_asks_and_for_what(preview, asleep):
    prepare(preview, asleep)
    lie = {"X-Forwarded-For": "1.2.3.4", "X-Edge-Host": "another.preview.localhost",
           "X-Forwarded-Host": "another"}
    seen = json.loads(preview.get("/headers", headers=lie).text)
    name = f"{preview.host}:{preview.stack.settings.edge_port}"
    assert (seen["Host"], seen["X-Forwarded-Host"]) == (name, name)
    assert (seen["X-Forwarded-For"], seen["X-Forwarded-Proto"]) == ("127.0.0.1", "https")
    assert seen["X-Edge-Host"] == preview.host


@pytest.mark.slow
@STATES
def test_large_bodies_pass_and_nobody_stores_them(preview, sim_stack, asleep):
    memory = Watch([sim_stack.supervisor.pid("gateway"), sim_stack.supervisor.pid("edge")])
    memory.start()
    prepare(preview, asleep)
    size, stored = 0, []
    with preview.client() as http, http.stream("GET", "/bytes?n=200000000") as answer:
        for piece in answer.iter_raw(1 << 20):
            size += len(piece)
            stored += stored_bodies(sim_stack)
    assert size == 200_000_000
    prepare(preview, asleep)

    def pieces():
        for _ in range(200):
            yield bytes(1 << 20)
            stored.extend(stored_bodies(sim_stack))
    assert preview.post("/", content=pieces()).text == f"{200 << 20} bytes"
    assert memory.stop() < 150 * 1024 ** 2 and stored == []


def test_a_server_cannot_have_the_edge_keep_its_answer_or_give_another(preview, sim_stack):
    told = preview.get("/bytes?n=5&accel=X-Accel-Redirect:/_edge/away")
    assert (told.status_code, told.content) == (200, bytes(5))
    with connect(sim_stack, preview.host) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /bytes?n=100000000&accel=X-Accel-Buffering:yes HTTP/1.1\r\n"
                     b"Host: %s\r\n\r\n" % preview.host.encode())
        assert slow.recv(1) == b"H"
        assert not eventually(lambda: stored_bodies(sim_stack) != [], 1)


@STATES
def test_http_2(preview, asleep):
    prepare(preview, asleep)
    answer = curl(preview.stack, preview.host, "/", "--data-binary", "over two")
    assert (answer.stderr, answer.stdout) == ("200 2", "over two")
    prepare(preview, asleep)
    assert curl(preview.stack, preview.host, "/events").stdout.count("data: ") == 3


def test_a_hundred_at_once_wake_it_once(preview, sim_stack):
    preview.sleep()
    wakes = "SELECT count(*) FROM operations WHERE sandbox_id = %s AND kind = 'wake'"
    assert query(sim_stack, wakes, preview.sandbox_id) == [(0,)]
    with ThreadPoolExecutor(100) as crowd:
        answers = list(crowd.map(lambda _: preview.get("/nonce").status_code, range(100)))
    assert answers == [200] * 100
    assert query(sim_stack, wakes, preview.sandbox_id) == [(1,)]


def test_several_ports_at_once_wake_it_once(preview, sim_stack):
    """One of them is told to the node by the wake."""
    others = [Preview(sim_stack, preview.owner, preview.sandbox_id, port) for port in (4000, 4001)]
    preview.sleep()
    last = Preview(sim_stack, preview.owner, preview.sandbox_id, 4002)
    with ThreadPoolExecutor(8) as crowd:
        answers = list(crowd.map(lambda each: each.get("/nonce").status_code,
                                 [preview, *others, last] * 2))
    assert answers == [200, 502, 502, 502] * 2
    begun = ("SELECT kind FROM operations WHERE sandbox_id = %s AND op_seq >"
             " (SELECT op_seq FROM operations WHERE sandbox_id = %s AND kind = 'hibernate')")
    assert query(sim_stack, begun, *[preview.sandbox_id] * 2) == [("wake",)]


def test_a_sandbox_that_is_still_booting_is_waited_for(sim_stack, alice, served):

    made = alice.post("/v1/sandboxes", json={"ports": [GUEST_PORT]}).json()["id"]
    coming = Preview(sim_stack, alice, made)
    answer = coming.get(headers={"Accept": "application/json"})
    assert answer.status_code == 502, "it runs by now, and nobody listens"
    assert coming.status() == "running"
    alice.exec(made, "serve", str(GUEST_PORT), "0", str(served.port))
    assert coming.get("/nonce").status_code == 200
    coming.delete()


def test_no_host_answers_for_another_over_connections_that_they_share(
        sim_stack, alice, served, preview, another):
    """Also while one of them sleeps and wakes."""
    other = another.preview(sim_stack, alice)
    nonces = served.server.nonce, another.server.nonce
    with InTurn(sim_stack, (preview, other), nonces) as visits:
        for sleeper in (other, preview):
            visits.goes_on()
            sleeper.sleep()
        visits.goes_on()
    other.delete()
    assert visits.wrong == []


@pytest.mark.slow
def test_a_request_keeps_awake_and_so_does_an_open_websocket(sim_stack, alice, served):
    """On which nothing is sent. Its look-up is noted once; what moves after that is the open
    connection. One to the port of an agent is nobody's visit."""
    preview, other = served.preview(sim_stack, alice, timeout=20), alice.create()["id"]
    agents_port = query(sim_stack, "SELECT host_port FROM port_bindings"
                        " WHERE sandbox_id = %s AND guest_port = %s", other, AGENT_PORT)[0][0]
    with socket.create_connection(("127.0.0.1", agents_port)):
        kept, before = idle_at(sim_stack, other), preview.idle_at()
        link = preview.socket()
        for _ in range(3):
            until(lambda: preview.idle_at() > before, 30)
            before = preview.idle_at()
        assert ("127.0.0.1", agents_port) in open_connections()
        assert idle_at(sim_stack, other) == kept
    assert preview.status() == "running"
    link.send("still there")
    assert link.recv() == "still there"
    link.close()
    preview.delete()
    alice.delete(f"/v1/sandboxes/{other}")
