"""Previews of a node that is not this host: it is reached at the address that its row has."""
import socket

import pytest

from tests.stack.database import query
from tests.stack.previews import GUEST_PORT, Preview
from tests.stack.processes import second_node
from tests.stack.waiting import until

OTHER, ADDRESS = "node-apart", "127.0.0.2"
STATES = pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])


@pytest.fixture(scope="module")
def other(sim_stack):
    with second_node(sim_stack, OTHER, ("ctl", "ops"), SVC_NODE_ADDRESS=ADDRESS):
        yield OTHER


@pytest.fixture
def there(sim_stack, alice, served, other):
    """The preview of a running sandbox on that node."""
    made = alice.post("/v1/sandboxes", json={"ports": [GUEST_PORT], "timeout": 20},
                      headers=alice.key_headers | {"X-Svc-Node": other})
    sandbox_id = made.raise_for_status().json()["id"]
    alice.wait_for(sandbox_id, "running")
    alice.exec(sandbox_id, "serve", str(GUEST_PORT), "0", str(served.port))
    preview = Preview(sim_stack, alice, sandbox_id)
    yield preview
    preview.delete()


@pytest.mark.slow
@STATES
def test_it_is_reached_at_the_address_of_its_node(there, asleep):
    if asleep:
        there.sleep()
    assert "Hello from the sandbox" in there.get().text
    link = there.socket()
    link.send("from afar")
    assert link.recv() == "from afar"
    link.close()
    [(port,)] = query(there.stack, "SELECT host_port FROM port_bindings WHERE sandbox_id = %s"
                                   " AND guest_port = %s", there.sandbox_id, GUEST_PORT)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.slow
def test_an_open_websocket_keeps_it_awake(there):
    """Connections count by address and port; the first move may be the look-up's."""
    before, link = there.idle_at(), there.socket()
    for _ in range(2):
        until(lambda: there.idle_at() > before, 30)
        before = there.idle_at()
    link.close()
