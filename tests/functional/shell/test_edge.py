"""A shell through the edge: on its own host and on the API's, over TLS."""
import pytest
import websocket

from tests.clients.shells import PROTOCOL, ShellClient, entry
from tests.tls.clients import connect

ADDRESSES = {"shell.localhost": "/{}", "api.localhost": "/v1/sandboxes/{}/shell"}


def url_at(stack, host, sandbox_id):
    return f"wss://{host}:{stack.site.values['SVC_EDGE_PORT']}{ADDRESSES[host].format(sandbox_id)}"


@pytest.mark.parametrize("host", ADDRESSES)
def test_a_shell_as_a_browser_opens_it(sim_stack, alice, box, host):
    with connect(sim_stack, host) as link, ShellClient(
            url_at(sim_stack, host, box), protocols=[PROTOCOL, entry("api_key", alice.api_key)],
            socket=link) as shell:
        shell.type("echo hello-$((1+1)); exit\n")
        shell.until("hello-2")
        assert shell.to_the_end() == 1000


@pytest.mark.parametrize("host", ADDRESSES)
def test_a_refusal_passes_as_it_is(sim_stack, alice, mallory, box, host):
    with connect(sim_stack, host) as link:
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            ShellClient(url_at(sim_stack, host, box), mallory.key_headers, socket=link)
    assert refused.value.status_code == 403 and b"another account" in refused.value.resp_body
