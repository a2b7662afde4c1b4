"""How many requests one address may have under way at the edge, shells and previews among them, and
whose address counts behind a proxy."""
from contextlib import suppress

import httpx
import pytest

from tests.clients.shells import HANDSHAKE, ShellClient
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client, context_of
from tests.tls.reloaded import edge_with

MOST, PROXY = 2, "127.0.0.9"
OTHERS = ["127.0.0.2", PROXY]
SHELL = "shell.localhost"


@pytest.fixture(scope="module")
def crowded(sim_stack, alice):
    """The preview of a sandbox; it and a shell take up all that 127.0.0.1 may have."""
    served = Served()
    begin_anew(sim_stack)
    with edge_with(sim_stack, SVC_EDGE_REQUESTS_PER_ADDRESS=str(MOST), SVC_EDGE_PROXIES=PROXY):
        preview = served.preview(sim_stack, alice)
        link, shell = preview.socket(), open_shell(sim_stack, alice, preview.sandbox_id)
        yield preview
        link.close()
        shell.socket.shutdown()
    preview.delete()
    served.close()


def begin_anew(stack):
    """Nothing that tests before have left counts: of a worker of nginx that was killed that is so
    as long as nginx runs."""
    stack.restart("edge")

    def answers():
        with suppress(httpx.HTTPError):
            return status_of(stack, "localhost", "/health") == 200

    until(answers, 30)


def open_shell(stack, alice, sandbox_id):
    port = stack.settings.edge_port
    return ShellClient(
        f"wss://127.0.0.1:{port}/{sandbox_id}", alice.key_headers, host=f"{SHELL}:{port}",
        sslopt={"context": context_of(stack), "server_hostname": SHELL})


def status_of(stack, host, path, source=None, **headers):
    with client(stack, host, source) as http:
        return http.get(path, headers=headers).status_code


def targets(crowded, alice):
    """Host, path and headers of what is answered if the address may ask."""
    return [("localhost", "/health", {}), (crowded.host, "/nonce", {}),
            (SHELL, f"/{crowded.sandbox_id}", {**HANDSHAKE, **alice.key_headers})]


def test_an_address_has_so_many_requests_on_all_hosts_together(sim_stack, crowded, alice):
    for host, path, headers in targets(crowded, alice):
        assert status_of(sim_stack, host, path, **headers) == 429, host


@pytest.mark.parametrize("source", OTHERS)
def test_another_address_is_served(sim_stack, crowded, alice, source):
    for host, path, headers in targets(crowded, alice)[:2]:
        assert status_of(sim_stack, host, path, source, **headers) == 200, host


def test_behind_a_proxy_its_client_counts(sim_stack, crowded):
    for client_address, status in (("127.0.0.1", 429), ("192.0.2.7", 200)):
        named = {"X-Forwarded-For": f"203.0.113.1, {client_address}"}
        assert status_of(sim_stack, "localhost", "/health", PROXY, **named) == status


def test_who_is_no_proxy_cannot_choose_its_address(sim_stack, crowded):
    named = {"X-Forwarded-For": "192.0.2.7"}
    assert status_of(sim_stack, "localhost", "/health", None, **named) == 429
    assert status_of(sim_stack, "localhost", "/health", "127.0.0.2",
                     **{"X-Forwarded-For": "127.0.0.1"}) == 200


def test_behind_a_proxy_servers_in_sandboxes_are_told_the_client(sim_stack, crowded):
    with client(sim_stack, crowded.host, PROXY) as http:
        seen = http.get("/headers", headers={"X-Forwarded-For": "1.2.3.4, 192.0.2.7"}).json()
    assert seen["X-Forwarded-For"] == "192.0.2.7"


def test_it_is_said_in_json_or_on_a_page_and_when_to_try_again(sim_stack, crowded):
    with client(sim_stack) as http:
        answer = http.get("/health")
    assert "address" in answer.json()["error"] and int(answer.headers["Retry-After"]) > 0
    page = crowded.get("/", headers={"Accept": "text/html"})
    assert "Too many requests" in page.text and int(page.headers["Retry-After"]) > 0
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    told = crowded.get("/", headers={"Accept": "application/json"})
    assert "address" in told.json()["error"]
    assert told.headers["Content-Type"] == "application/json"


def test_a_request_that_ends_makes_room(sim_stack, alice, sandbox, crowded):
    """From an address of its own: those of the fixture stay."""
    def get():
        return client(sim_stack, crowded.host, "127.0.0.3")
    with get() as first, get() as second, get() as third:
        with first.stream("GET", "/bytes?n=1000000000"), second.stream(
                "GET", "/bytes?n=1000000000"):
            assert third.get("/nonce").status_code == 429
        until(lambda: answers(third))


@pytest.mark.parametrize(("network", "refused", "served"), [
    (("2001:db8:0:1::1", "2001:db8:0:1:ffff:0a0d:0:1"), "2001:db8:0:1::3", "2001:db8:0:2::1"),
    (("::ffff:192.0.2.9", "::ffff:192.0.2.9"), "::ffff:192.0.2.9", "::ffff:192.0.2.8"),
], ids=["a network", "of IPv4"])
def test_of_ipv6_a_network_counts_as_one_address(sim_stack, crowded, network, refused, served):
    def get(http, path, address):
        return http.stream("GET", path, headers={"X-Forwarded-For": address})

    def status(address):
        with client(sim_stack, crowded.host, PROXY) as http:
            return http.get("/nonce", headers={"X-Forwarded-For": address}).status_code

    with client(sim_stack, crowded.host, PROXY) as first, \
            client(sim_stack, crowded.host, PROXY) as second:
        with get(first, "/bytes?n=1000000000", network[0]), \
                get(second, "/bytes?n=1000000000", network[1]):
            assert (status(refused), status(served)) == (429, 200)


def answers(http):
    try:
        return http.get("/nonce").status_code == 200
    except httpx.HTTPError:
        return False
