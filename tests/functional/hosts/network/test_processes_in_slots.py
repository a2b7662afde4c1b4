"""What a process inside of a slot may send, as a QEMU that its guest took over would: nothing of
its own. What the kernel there says to the guest and to the host goes on."""
import contextlib
import errno
import socket
from pathlib import Path

import pytest

from guest.agent.protocol import AGENT_PORT
from nodeworker.network import addresses, links, namespaces, nft
from nodeworker.network.ruleset import AGENT_MOST
from tests.host.disk_node import Node
from tests.host.guest_places import guest_places, ip

NAME, NOBODY, MANY = "tproc", "9.9.9.56", 500
# From linux/in.h.
IP_RECVERR, IP_MTU_DISCOVER, IP_PMTUDISC_DO = 11, 10, 2


@pytest.fixture
def on_node(tmp_path):
    """Carries out a function of a node in a namespace that is its host, with a road for what guests
    send; one slot is ready there."""
    def run(work):
        return namespaces.in_namespace(NAME, work)

    namespaces.create_namespace(NAME)
    with contextlib.ExitStack() as undo:
        undo.callback(namespaces.delete_namespace, NAME)
        for line in ("link set lo up", "link add out type veth peer name sink", "link set sink up",
                     "link set out up", "addr add 192.0.2.1/24 dev out",
                     "route add default via 192.0.2.9 dev out",
                     "neigh add 192.0.2.9 lladdr 02:00:00:00:00:01 dev out"):
            ip(f"-n {NAME} {line}")
        node = Node(tmp_path)
        node.environ |= {"SVC_NET_PREFIX": NAME, "SVC_SLOT_POOL": "1"}
        node.restart()
        undo.callback(run, lambda: links.remove_slot(ready_slot(node)))
        run(node.driver.reclaim)
        yield lambda work: run(lambda: work(node))


def ready_slot(node):
    number, = node.host.network.slots.ready()
    return node.host.network.slots.slot(number)


def known_after_flood(slot):
    """How many connections the host knows once a process of the slot has sent what it can."""
    def flood():
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            for port in range(1, MANY + 1):
                with socket.socket(socket.AF_INET, kind) as sender:
                    sender.setblocking(False)
                    with contextlib.suppress(OSError):
                        sender.connect((NOBODY, port))
                    with contextlib.suppress(OSError):
                        sender.send(b"")

    namespaces.in_namespace(slot.namespace, flood)
    return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())


def test_it_fills_the_host_s_table_of_connections_from_no_slot(on_node):
    def flooded(node):
        assert known_after_flood(ready_slot(node)) == 0

    on_node(flooded)


def test_a_slot_of_an_earlier_version_has_the_rules_of_now_once_the_worker_has_started(on_node):
    def upgraded(node):
        slot = ready_slot(node)
        made = rules(slot)
        namespaces.in_namespace(slot.namespace, lambda: nft.apply(
            "flush chain inet slot output\ndelete chain inet slot output\n"))
        known = known_after_flood(slot)
        assert known == 2 * MANY, "the road is open"
        node.restart()
        node.driver.reclaim()
        assert ready_slot(node) == slot, "it is kept"
        assert known_after_flood(slot) <= known
        assert sorted(rules(slot).splitlines()) == sorted(made.splitlines())

    on_node(upgraded)


def rules(slot):
    return namespaces.in_namespace(slot.namespace, lambda: nft.rules("slot"))


@pytest.fixture(scope="module")
def place():
    """A guest on this host; its slot's uplink takes less at once than its own cable."""
    with guest_places("tprocg", "10.247.0.0/24", 0) as (made, ):
        ip(f"-n {made.slot.namespace} link set dev {addresses.UPLINK_NAME} mtu 1400")
        yield made


def test_who_is_one_too_many_at_an_agent_is_reset_at_once(place):
    listener = place.run(lambda: socket.create_server(("", AGENT_PORT), backlog=512))
    with contextlib.ExitStack() as held:
        held.enter_context(listener)
        for _ in range(AGENT_MOST):
            held.enter_context(socket.create_connection((place.address, AGENT_PORT), 5))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((place.address, AGENT_PORT), 20)


@pytest.mark.parametrize(("option", "value", "error"), [
    (socket.IP_TTL, 1, errno.EHOSTUNREACH), (IP_MTU_DISCOVER, IP_PMTUDISC_DO, errno.EMSGSIZE)])
def test_a_guest_is_told_what_becomes_of_its_packets(place, option, value, error):
    def told():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            sender.setsockopt(socket.IPPROTO_IP, option, value)
            sender.settimeout(5)
            sender.connect((NOBODY, 9))
            sender.send(bytes(1450))
            with pytest.raises(OSError) as raised:
                sender.recv(1)
            return raised.value.errno

    assert place.run(told) == error
