"""The edge: TLS by this machine's authority, HTTP/2, and which name leads where."""
import ssl
from concurrent.futures import ThreadPoolExecutor

import pytest

from bin.stack.free_ports import free_port
from services.accounts.sign_in_throttle import PAIR_TRIES
from tests.stack.waiting import eventually
from tests.tls.clients import client, connect, curl, talk

HOSTS = ("localhost", "api.localhost", "auth.localhost", "shell.localhost",
         "some-3000.preview.localhost", "shop.apps.localhost")


@pytest.mark.parametrize("host", HOSTS)
def test_each_host_has_a_certificate_that_the_authority_vouches_for(sim_stack, host):
    with connect(sim_stack, host) as link:
        assert link.version() == "TLSv1.3"


@pytest.mark.parametrize("host", ["example.test", "a.b.preview.localhost", "127.0.0.1"])
def test_it_vouches_for_no_other(sim_stack, host):
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(sim_stack, host)


@pytest.mark.parametrize(("host", "path"), [
    ("localhost", "/health"), ("api.localhost", "/health"),
    ("auth.localhost", "/.well-known/jwks.json")])
def test_curl_reaches_api_and_identity_over_http_2(sim_stack, host, path):
    answer = curl(sim_stack, host, path)
    assert answer.stderr == "200 2" and answer.stdout.startswith("{")


def test_a_call_with_a_credential_and_a_body_passes(sim_stack, alice):
    with client(sim_stack) as http:
        made = http.post("/v1/sandboxes", json={}, headers=alice.key_headers)
        assert made.status_code == 201
        gone = http.delete(f"/v1/sandboxes/{made.json()['id']}", headers=alice.key_headers)
        assert gone.status_code == 200


def test_each_host_has_its_own_routes_only(sim_stack):
    with client(sim_stack, "auth.localhost") as http:
        assert http.get("/v1/sandboxes").status_code == 404
    with client(sim_stack, "api.localhost") as http:
        assert http.get("/.well-known/jwks.json").status_code == 404


def test_another_name_leads_nowhere(sim_stack):
    request = b"GET /health HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
    answer = talk(sim_stack, request)
    assert answer.startswith(b"HTTP/1.1 404 ") and b'{"error":"' in answer


@pytest.mark.slow
def test_the_identity_host_learns_who_the_client_is(sim_stack):
    """Guesses at a password are counted for each address, which a client cannot choose."""
    body, tries = {"email": "by-the-edge@example.test", "password": "wrong"}, PAIR_TRIES
    with client(sim_stack, "auth.localhost", "127.0.0.9") as http:
        for number in range(tries + 1):
            forged = {"X-Forwarded-For": f"192.0.2.{number}", "X-Svc-Edge": "forged"}
            status = http.post("/login", json=body, headers=forged).status_code
            assert status == (401 if number < tries else 429)
    with client(sim_stack, "auth.localhost", "127.0.0.10") as http:
        assert http.post("/login", json=body).status_code == 401


def test_a_doubled_slash_stays_one(sim_stack):
    with client(sim_stack) as http:
        assert http.get("//health").status_code == 404


@pytest.fixture
def nobody_behind(sim_stack):
    """The edge before a shell and a gateway that are not there."""
    gone = {"SVC_SHELL_PORT": str(free_port()), "SVC_GATEWAY_PORT": str(free_port())}
    sim_stack.run("python -m config.nginx.reload", env={**sim_stack.env, **gone})
    yield
    sim_stack.run("python -m config.nginx.reload")


@pytest.mark.slow
def test_the_log_holds_neither_query_nor_host_nor_credential(sim_stack, nobody_behind):
    secret = "s3cret-of-this-test"
    head = (f"GET /health?access_token={secret} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {secret}\r\nCookie: {secret}\r\nReferer: https://{secret}/\r\n"
            f"Sec-WebSocket-Protocol: svc.api_key.{secret}\r\nConnection: close\r\n\r\n")
    preview = f"{secret}.preview.localhost"
    assert talk(sim_stack, head.encode()).startswith(b"HTTP/1.1 200 ")
    with ThreadPoolExecutor(2) as both:  # each waits for who is not there
        both.submit(talk, sim_stack, head.replace("Host: localhost", f"Host: {preview}").encode(),
                    preview)
        both.submit(talk, sim_stack, head.replace("/health", "/v1/sandboxes/x/shell").encode())
    assert eventually(lambda: "/v1/sandboxes/x/shell" in sim_stack.logs("edge"), 10)
    text = sim_stack.logs("edge", 1000)
    assert secret not in text and text.count("connect() failed") >= 2
