"""Served apps beside previews, of which a worker of nginx looks up more than it has timers for."""
import os
import signal
import time
from contextlib import ExitStack

import pytest

from config.nginx.reload import reload
from config.nginx.render import directory_of, find_nginx
from config.nginx.workers import workers_of
from services.previews.urls import new_label
from tests.functional.deploys.conftest import HOST
from tests.stack.database import query
from tests.stack.previews import GUEST_PORT
from tests.stack.waiting import until
from tests.tls.clients import client, connect

# Of nginx's Lua module, for one worker, as long as nobody says another number.
TIMERS = 256
MANY, MORE = TIMERS + 64, 100
# An address is used for so long without a look-up, then as long again beside one.
TTL_S = 2
# A worker that nobody tells anything connects anew after 4 s, and lets a look-up go after 5.
SILENCE_S = 5
# So long it makes a served app's request wait if it never hears anything again.
PATIENCE_S = 10


@pytest.fixture
def one_worker(sim_stack):
    """The edge has one worker only, which gets all requests."""
    configuration = directory_of(sim_stack.settings) / "nginx.conf"
    master, text = sim_stack.supervisor.pid("edge"), configuration.read_text()
    before = workers_of(master)
    configuration.write_text(text.replace("worker_processes auto;", "worker_processes 1;"))
    os.kill(master, signal.SIGHUP)
    until(lambda: len(workers_of(master)) == 1 and not workers_of(master) & before)
    yield
    reload(sim_stack.settings, find_nginx())


@pytest.fixture
def hosts(sim_stack, versions):
    """Previews of as many ports of a sandbox, all of which lead to the same server."""
    sandbox = versions[1].sandbox_id
    [(port,)] = query(sim_stack, "SELECT host_port FROM port_bindings WHERE sandbox_id = %s"
                                 " AND guest_port = %s", sandbox, GUEST_PORT)
    labels = [new_label(20_000 + number) for number in range(MANY + MORE)]
    for label in labels:
        guest_port = int(label.partition("-")[2])
        query(sim_stack, "INSERT INTO preview_hosts VALUES (%s, %s, %s)", label, sandbox,
              guest_port)
        # Host ports are numbered by node; a look-up takes the node of the sandbox.
        query(sim_stack, "INSERT INTO port_bindings (node_id, host_port, guest_port, sandbox_id)"
                         " VALUES (%s, %s, %s, %s)", label, port, guest_port, sandbox)
    yield [f"{label}.{sim_stack.settings.preview_domain}" for label in labels]
    query(sim_stack, "DELETE FROM port_bindings WHERE node_id = ANY(%s)", labels)
    query(sim_stack, "DELETE FROM preview_hosts WHERE label = ANY(%s)", labels)


def ask(links):
    for host, link in links:
        link.sendall(f"GET /nonce HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def take(links, nonce):
    """The answers to these; an error is raised if one is another, or does not come."""
    for _, link in links:
        answer = b""
        while not answer.endswith(nonce):
            piece = link.recv(65536)
            assert piece, answer
            answer += piece


def next_read(stack):
    """Return when the edge has just been told where apps are; for a second it is not told again."""
    def read():
        return query(stack, "SELECT max(routes_until) FROM gateways")
    before = read()
    until(lambda: read() != before)


@pytest.mark.slow
def test_a_gateway_that_hung_meanwhile_is_heard_again(
        one_worker, shop, sim_stack, versions, hosts):
    """Its worker had to connect anew while look-ups went on and new ones began."""
    gateway, nonce = sim_stack.supervisor.pid("gateway"), versions[1].get("/nonce").content
    with ExitStack() as stack:
        links = [(host, stack.enter_context(connect(sim_stack, host))) for host in hosts]
        many, more = links[:MANY], links[MANY:]
        began = time.monotonic()
        ask(many)
        take(many, nonce)
        time.sleep(max(began + TTL_S - time.monotonic(), 0))
        next_read(sim_stack)
        ask(more)
        take(more, nonce)
        os.kill(gateway, signal.SIGSTOP)
        try:
            ask(many)
            time.sleep(TTL_S)
            for each in more:
                ask([each])
                time.sleep(TTL_S / MORE)
            time.sleep(SILENCE_S - 2 * TTL_S)
        finally:
            os.kill(gateway, signal.SIGCONT)
        take(links, nonce)
    with client(sim_stack, HOST) as http:
        assert http.get("/nonce").status_code == 200
        began = time.monotonic()
        assert http.get("/nonce").status_code == 200
        assert time.monotonic() - began < PATIENCE_S
