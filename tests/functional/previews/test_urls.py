"""The preview URL of a port: its own for each sandbox and port, kept for life, unguessable."""
import re
import socket
from urllib.parse import urlsplit

import pytest

from guest.agent.protocol import AGENT_PORT
from tests.stack.database import locked
from tests.stack.waiting import listens, until

LABEL = re.compile(r"[a-z2-7]{26}-\d{1,5}")


def url(persona, sandbox_id, port):
    return persona.get(f"/v1/sandboxes/{sandbox_id}/url/{port}")


def host_port(persona, sandbox_id, port):
    ports = persona.get(f"/v1/sandboxes/{sandbox_id}").json()["portMap"]
    return next(int(host) for host, guest in ports.items() if guest == port)


@pytest.fixture
def server():
    """A server that takes connections, for what a simulated guest serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_an_address_is_kept_for_life_and_every_port_and_copy_has_its_own(alice, sim_stack):
    made = alice.create(ports=[3000])["id"]
    answer = url(alice, made, 3000)
    parts = urlsplit(answer.json()["url"])
    label, domain = parts.hostname.split(".", 1)
    assert answer.status_code == 200 and parts.scheme == "https"
    assert LABEL.fullmatch(label) and label.endswith("-3000") and made not in label
    assert (domain, parts.port) == ("preview.localhost", sim_stack.settings.edge_port)
    alice.post(f"/v1/sandboxes/{made}/hibernate").raise_for_status()
    assert url(alice, made, 3000).json() == answer.json(), "asleep too, and without a wake"
    assert alice.get(f"/v1/sandboxes/{made}").json()["status"] == "hibernated"
    fork = alice.post(f"/v1/sandboxes/{made}/fork", json={}).json()["id"]
    urls = {url(alice, sandbox, port).json()["url"]
            for sandbox in (made, fork) for port in (3000, 5000)}
    assert len(urls) == 4
    alice.wait_for(fork, "running")
    for sandbox in (made, fork):
        alice.delete(f"/v1/sandboxes/{sandbox}")
    assert url(alice, made, 3000).status_code == 409


@pytest.mark.parametrize("port", ["0", "65536", str(AGENT_PORT), "x", "-1", "080", "3000.0", "٣"])
def test_what_is_no_port_is_400(alice, port):
    made = alice.post("/v1/sandboxes", json={}).json()["id"]
    assert url(alice, made, port).status_code == 400
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_port_that_was_not_named_is_opened_under_a_running_guest(alice, server):
    made = alice.create()["id"]
    alice.exec(made, "serve", "4000", "0", str(server))
    url(alice, made, 4000).raise_for_status()
    until(lambda: listens(host_port(alice, made, 4000)), 10)
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_port_asked_for_of_a_sleeping_sandbox_is_open_once_it_wakes(alice, server):
    made = alice.create()["id"]
    alice.exec(made, "serve", "4000", "0", str(server))
    alice.post(f"/v1/sandboxes/{made}/hibernate").raise_for_status()
    url(alice, made, 4000).raise_for_status()
    assert not listens(host_port(alice, made, 4000))
    alice.post(f"/v1/sandboxes/{made}/wake").raise_for_status()
    assert listens(host_port(alice, made, 4000))
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_sandbox_has_64_ports_at_most(mallory):
    """An account may have so many ports on a node, of which alice needs some at the same time."""
    made = mallory.create(ports=list(range(5000, 5063)))["id"]
    assert url(mallory, made, 3000).status_code == 200
    assert url(mallory, made, 3001).status_code == 400
    assert url(mallory, made, 5001).status_code == 200
    mallory.delete(f"/v1/sandboxes/{made}")


def test_one_that_is_there_waits_for_no_node(alice, sim_stack):
    """Whose row everybody waits for who gets a sandbox there."""
    made = alice.create(ports=[3000])["id"]
    first = url(alice, made, 3000).json()
    with locked(sim_stack, "nodes", sim_stack.settings.node_id):
        again = url(alice, made, 3000)
    assert (again.status_code, again.json()) == (200, first)
    alice.delete(f"/v1/sandboxes/{made}")


def test_another_account_gets_none(alice, mallory):
    made = alice.post("/v1/sandboxes", json={}).json()["id"]
    assert url(mallory, made, 3000).status_code == 403
    assert url(alice, "nosuch", 3000).status_code == 404
    alice.delete(f"/v1/sandboxes/{made}")
