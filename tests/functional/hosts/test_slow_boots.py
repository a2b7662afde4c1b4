"""A guest that takes long to boot, in a slot whose tap nobody reads: whoever waits for it does not
use up the connections that its agent may have."""
import socket
import time

import pytest

from guest.agent.protocol import AGENT_PORT
from guest.client.deadline import Deadline
from guest.client.dialing import dial, dial_patiently
from guest.client.errors import AgentTimeout, AgentUnreachable
from nodeworker.network import links, namespaces, nft
from nodeworker.network.addresses import TAP_NAME
from nodeworker.network.node_network import NodeNetwork
from nodeworker.network.ruleset import NodePorts

PREFIX, NETWORK = "tslow", "10.249.0.0/24"
# As a worker looks after a cold boot: for a moment, again and again.
MOMENTS_S = (1, 1, 1.5, 2, 2)


@pytest.fixture
def slot(tmp_path):
    network = NodeNetwork(tmp_path, prefix=PREFIX, slot_network=NETWORK, pool_target=0,
                          offered=NodePorts("127.0.0.1", (45000, 45009), (45010, 45019)))
    yield network.claim("slow")
    network.release("slow")
    nft.apply(f"delete table inet {PREFIX}")
    links.remove_refusal(NETWORK)


@pytest.mark.slow
def test_its_agent_refuses_nobody_when_it_has_come_up_at_last(slot):
    tap = namespaces.in_namespace(slot.namespace, lambda: namespaces.open_tap(TAP_NAME))
    address = (slot.address, AGENT_PORT)
    with open(tap, "rb", buffering=0):
        for moment_s in MOMENTS_S:
            with pytest.raises(AgentTimeout):
                dial_patiently(address, Deadline(moment_s))
            with pytest.raises(AgentUnreachable, match="timed out"):
                dial(address, Deadline(1), 0.05)


def test_a_connection_that_is_refused_is_tried_again_until_somebody_listens():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(AgentTimeout):
            dial_patiently(listener.getsockname(), Deadline(1.5))
        assert time.monotonic() - began >= 1.5
        listener.listen()
        dial_patiently(listener.getsockname(), Deadline(1.5)).close()
