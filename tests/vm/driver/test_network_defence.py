"""What holds a guest back when the host's packet policy is gone, who reaches the agents of guests,
and how many connections there may be."""
import contextlib
import socket
import subprocess
import time
from pathlib import Path

import pytest

from guest.client.agent_client import AgentClient
from nodeworker.network import addresses, links, namespaces, nft, ruleset
from nodeworker.network.ruleset import NodePorts
from tests.host.guest_network import (
    HOST_SIDE,
    PUBLIC,
    connects,
    namespace_of,
    own_addresses,
    reached,
    server_at,
)

SEND = """
import socket, sys
guest = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(10000, 10000 + int(sys.argv[2])):
    try:
        guest.sendto(b"x", (sys.argv[1], port))
    except OSError:
        pass
"""


@pytest.fixture
def policy_back(real):
    """Whatever a test does to the packet policy is undone."""
    yield
    real.driver.host.network.reload()


@pytest.fixture
def unguarded(real, policy_back):
    """A guest whose host has lost its packet policy; the ways there and back are open."""
    spec = real.create()
    nft.apply(f"delete table inet {real.settings.net_prefix}")
    return spec


def reach(real, spec):
    """The agent without a forwarded port, which is gone with the policy."""
    address = real.driver.host.network.slots.slot(
        real.driver.host.rundir(spec.sandbox_id).find_record().slot).address
    return AgentClient(address, 1024, spec.agent_token)


class Direct:
    """A lab whose agents are reached at their slots."""

    def __init__(self, real):
        self.real = real

    def agent(self, spec):
        return reach(self.real, spec)


def test_without_the_host_s_policy_a_guest_reaches_no_private_address_and_not_the_host(
        real, internet, unguarded):
    name, direct = namespace_of(real.settings.net_prefix), Direct(real)
    subprocess.run(["ip", "-n", name, "route", "add", real.settings.slot_network, "via", HOST_SIDE,
                    "dev", "inside", "onlink"], check=True)
    assert connects(direct, unguarded, PUBLIC, internet), "the roads are open"
    with contextlib.ExitStack() as servers:
        listener = servers.enter_context(socket.create_server(("0.0.0.0", 0), backlog=16))
        targets = [
            (address, servers.enter_context(server_at(real.settings.net_prefix, address)))
            for address in ("169.254.169.254", "10.0.0.1", "192.168.1.1")
        ]
        targets += [(address, listener.getsockname()[1])
                    for address in own_addresses() - {"127.0.0.1"}]
        assert reached(direct, unguarded, targets) == []


def test_a_changed_policy_is_noticed_and_loaded_again_with_the_ports_of_live_machines(
        real, unguarded):
    assert real.driver.restore_network()
    assert real.agent(unguarded).ping().adopted == unguarded.sandbox_id
    assert not real.driver.restore_network()
    prefix = real.settings.net_prefix
    for change in (f"flush chain inet {prefix} from_guest",
                   f"insert rule inet {prefix} from_guest accept"):
        nft.apply(change)
        assert real.driver.restore_network(), change
        assert not real.driver.restore_network()


def test_a_slot_whose_cable_somebody_takes_away_while_it_is_made_is_an_os_error(real, monkeypatch):
    slots = real.driver.host.network.slots
    known, slot = links._inside, slots.slot(max(slots.ready(), default=0) + 20)

    def inside(slot, own):
        links.delete_host_interface(addresses.UPLINK_NAME)  # of the slot's: this thread is there
        known(slot, own)

    monkeypatch.setattr(links, "_inside", inside)
    try:
        with pytest.raises(OSError):
            links.build_slot(slot, slots._group)
    finally:
        links.remove_slot(slot)


def test_ports_come_and_go_without_being_taken_for_a_changed_policy(real):
    real.driver.restore_network()
    spec = real.create()
    assert not real.driver.restore_network()
    real.driver.hibernate(spec.sandbox_id)
    assert not real.driver.restore_network()


def test_the_agent_s_port_is_open_to_the_hosts_named_and_the_tenant_s_to_everybody(
        real, internet, policy_back):
    spec = real.create()
    real.agent(spec).exec(["python3", "-m", "http.server", "8000"], detached=True, cwd="/etc")
    assert real.agent(spec).wait_port(8000, timeout_s=30)
    settings = real.settings

    def offer(*sources):
        ports = NodePorts(HOST_SIDE, settings.host_ports, settings.agent_ports, sources)
        nft.apply(ruleset.node_ruleset(settings.net_prefix, settings.slot_network, ports))

    def comes_through(port, wanted=True):
        def attempt():
            try:
                # an emulated guest on a busy host takes its time, a dropped packet all of it
                socket.create_connection((HOST_SIDE, port), timeout=20 if wanted else 1).close()
            except OSError:
                return False
            return True
        return namespaces.in_namespace(namespace_of(settings.net_prefix), attempt)

    for sources, expected in (((), False), (("192.0.2.7", "198.51.100.0/24"), False),
                              (("192.0.2.7", PUBLIC), True)):
        offer(*sources)
        assert comes_through(spec.forwards[0].host_port), "a tenant's port"
        assert comes_through(spec.agent_port, expected) is expected, sources
        assert real.agent(spec).ping(), "a process of this host"


def test_a_guest_cannot_fill_the_table_of_connections(real, internet):
    spec = real.create()
    slot = real.driver.host.network.slots.slot(
        real.driver.host.rundir(spec.sandbox_id).find_record().slot)
    count = Path("/proc/sys/net/netfilter/nf_conntrack_count")
    # By default an unanswered datagram is remembered for 30 s; the test waits for its end.
    forgotten = Path("/proc/sys/net/netfilter/nf_conntrack_udp_timeout")
    namespaces.in_namespace(slot.namespace, lambda: forgotten.write_text("12"))
    real.agent(spec).exec(
        ["python3", "-c", SEND, PUBLIC, str(ruleset.OUTGOING_MOST + 2000)], timeout_ms=60_000)
    known = namespaces.in_namespace(slot.namespace, lambda: int(count.read_text()))
    assert ruleset.OUTGOING_MOST / 2 < known < ruleset.OUTGOING_MOST + 500
    deadline = time.monotonic() + 60
    while not connects(real, spec, PUBLIC, internet):
        assert time.monotonic() < deadline, "it does not recover"
        time.sleep(1)
