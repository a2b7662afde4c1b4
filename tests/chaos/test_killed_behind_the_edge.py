"""kill -9 of a process behind the edge: the next request waits for the one that takes its place."""
import contextlib
from urllib.parse import urlsplit

import pytest
from websocket import WebSocketConnectionClosedException

from tests.clients.shells import ShellClient
from tests.stack.waiting import listens, until
from tests.tls.clients import client, context_of

HOSTS = {"api": ("localhost", "/health"), "identity": ("auth.localhost", "/.well-known/jwks.json")}


@pytest.fixture(autouse=True)
def afterwards(alice):
    """Everybody's connections to the API have ended with it."""
    yield
    until(alice.is_answered)


@pytest.mark.parametrize("name", HOSTS)
def test_the_next_get_is_answered(sim_stack, name):
    host, path = HOSTS[name]
    with client(sim_stack, host) as http:
        http.get(path).raise_for_status()
        sim_stack.kill(name)
        assert http.get(path).status_code == 200


def test_a_post_that_has_a_body_is_told_to_try_again(sim_stack, alice):
    """Of its body nobody knows any more what has been sent."""
    with client(sim_stack) as http:
        sim_stack.crash("api")
        try:
            # Its workers take requests, and answer them, until they notice that it is gone.
            until(lambda: not listens(urlsplit(sim_stack.api_url).port))
            answer = http.post("/v1/sandboxes", json={}, headers=alice.key_headers)
        finally:
            sim_stack.start("api")
        assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
        assert http.get("/health").status_code == 200


@pytest.mark.parametrize(("host", "path"), [
    ("shell.localhost", "/{}"), ("localhost", "/v1/sandboxes/{}/shell")])
def test_the_next_shell_opens(sim_stack, alice, sandbox, host, path):
    sim_stack.kill("shell")
    port = sim_stack.settings.edge_port
    address = f"wss://127.0.0.1:{port}{path.format(sandbox)}"

    def opens():
        """False if it opened at the worker that is about to end; a refusal is an error."""
        with ShellClient(address, alice.key_headers, host=f"{host}:{port}", sslopt={
                "context": context_of(sim_stack), "server_hostname": host}) as shell:
            with contextlib.suppress(ConnectionError, WebSocketConnectionClosedException):
                shell.type("exit\n")
                return shell.to_the_end() == 1000
            return False
    until(opens)
