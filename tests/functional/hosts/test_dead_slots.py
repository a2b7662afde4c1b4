"""What another host of the network meets at a node, in namespaces without a VM: `edge` and `slot`
are connected through `node`, which has the packet policy of a node."""
import contextlib
import socket
import subprocess
import threading
import time

import pytest

from nodeworker.network import addresses, ip_forwarding, links, namespaces, nft, ruleset
from nodeworker.network.node_network import NodeNetwork
from nodeworker.network.ruleset import NodePorts
from tests.host.guest_places import addresses_asleep

NETWORK, EDGE, NODE, ELSEWHERE = "10.250.0.0/24", "192.0.2.10", "192.0.2.1", "192.0.2.99"
PUBLIC = "9.9.9.54"
TENANT, AGENT, GUEST_PORT = 20001, 30001, 8000
GROUP = addresses.device_group("tdead")
SLOT = "10.250.0.16"


def ip(line):
    subprocess.run(["ip", *line.split()], check=True)


def on_node(work):
    return namespaces.in_namespace("tdead-node", work)


def load(*edge_sources):
    ports = NodePorts(NODE, (20000, 20009), (30000, 30009), (EDGE,), edge_sources)
    on_node(lambda: nft.apply(ruleset.node_ruleset("tdead", NETWORK, ports)))


@pytest.fixture
def hosts():
    """The three namespaces, with the policy and a forwarded port."""
    names = ("tdead-edge", "tdead-node", "tdead-slot")
    with contextlib.ExitStack() as undo:
        for name in names:
            namespaces.create_namespace(name)
            undo.callback(namespaces.delete_namespace, name)
            ip(f"-n {name} link set lo up")
        for name, link in (("tdead-edge", "tdead-e"), ("tdead-slot", "tdead-s")):
            ip(f"link add {link} type veth peer name inside netns {name}")
            ip(f"link set {link} netns tdead-node")
            ip(f"-n tdead-node link set {link} up")
            ip(f"-n {name} link set inside up")
        ip(f"-n tdead-edge addr add {EDGE}/24 dev inside")
        ip("-n tdead-edge addr add 192.0.2.11/24 dev inside")
        ip(f"-n tdead-node addr add {NODE}/24 dev tdead-e")
        # The host's default route, where packets for a slot that is gone would go.
        ip(f"-n tdead-node route add default via {ELSEWHERE} dev tdead-e")
        ip(f"-n tdead-node neigh add {ELSEWHERE} lladdr 02:00:00:00:00:01 dev tdead-e")
        ip(f"-n tdead-node link set tdead-s group {GROUP}")
        ip("-n tdead-node addr add 10.250.0.1/32 dev tdead-s")
        ip(f"-n tdead-node route add {SLOT}/32 dev tdead-s")
        ip(f"-n tdead-slot addr add {SLOT}/32 dev inside")
        ip("-n tdead-slot route add 10.250.0.1/32 dev inside")
        ip("-n tdead-slot route add default via 10.250.0.1 dev inside")
        load()
        on_node(lambda: (
            links.refuse(NETWORK),
            nft.apply(ruleset.add_forwards("tdead", SLOT, [(TENANT, GUEST_PORT)])),
            subprocess.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)))
        listener = undo.enter_context(namespaces.in_namespace(
            "tdead-slot", lambda: socket.create_server((SLOT, GUEST_PORT))))
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        server.join()


@pytest.fixture
def network(hosts, tmp_path):
    """The node's network, as in its namespace; the slot is that of the sandbox `ours`."""
    made = NodeNetwork(tmp_path, prefix="tdead", slot_network=NETWORK, pool_target=0,
                       offered=NodePorts(NODE, (20000, 20009), (30000, 30009)))
    (tmp_path / "used" / "0.ours").touch()
    return made


def serve(listener):
    """Answer one byte, then be silent."""
    with contextlib.ExitStack() as links_taken, contextlib.suppress(OSError):
        while True:
            link, _ = listener.accept()
            links_taken.enter_context(link).sendall(b"!")


def connect(source=EDGE, timeout=5.0):
    return namespaces.in_namespace("tdead-edge", lambda: socket.create_connection(
        (NODE, TENANT), timeout, source_address=(source, 0)))


def end_slot():
    """As a sandbox that goes to sleep: its forwarded port, then its slot."""
    on_node(lambda: nft.apply(ruleset.delete_forwards("tdead", [TENANT])))
    ip("-n tdead-node link del tdead-s")


def asleep():
    return on_node(lambda: addresses_asleep("tdead"))


def check_forwarded_again(network):
    on_node(lambda: network.forward(network.slots.slot(0), {TENANT: GUEST_PORT}, fresh=True))
    assert asleep() == []
    with connect() as link:
        assert link.recv(1) == b"!"


def check_reset(kept):
    kept.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        kept.recv(1)


def test_a_kept_connection_to_a_slot_that_is_gone_is_reset(hosts):
    """The kernel still knows where the port led to; without the rule its packets followed the
    default route, and the edge waited for ever."""
    with connect() as kept:
        assert kept.recv(1) == b"!"
        end_slot()
        check_reset(kept)


def test_a_kept_connection_to_a_slot_whose_sandbox_sleeps_is_reset(network):
    """The slot stays, and nobody is there who would answer."""
    with connect() as kept:
        assert kept.recv(1) == b"!"
        on_node(lambda: network.close("ours"))
        check_reset(kept)
    with pytest.raises(ConnectionRefusedError):
        connect()
    check_forwarded_again(network)


def test_connections_of_a_guest_outlast_its_sleep_in_a_slot_that_is_kept(network):
    ip(f"-n tdead-edge addr add {PUBLIC}/32 dev inside")
    ip(f"-n tdead-node route add {PUBLIC}/32 dev tdead-e")
    public = namespaces.in_namespace("tdead-edge", lambda: socket.create_server((PUBLIC, 443)))
    of_guest = namespaces.in_namespace(
        "tdead-slot", lambda: socket.create_connection((PUBLIC, 443), 5, (SLOT, 0)))
    with public, of_guest, public.accept()[0] as peer:
        on_node(lambda: network.close("ours"))
        assert asleep() == [SLOT]
        peer.sendall(b"?")
        assert of_guest.recv(1) == b"?"


def test_whoever_gets_the_slot_of_one_that_slept_is_reached(network, tmp_path):
    on_node(lambda: (network.close("ours"), network.release("ours")))
    assert asleep() == [] and not network.slots.owners()
    # Whoever died before that has left its address.
    on_node(lambda: nft.apply(ruleset.put_to_sleep("tdead", SLOT)))
    (tmp_path / "used" / "0.another").touch()
    check_forwarded_again(network)


def test_a_sandbox_falls_asleep_also_where_the_policy_was_lost(network):
    on_node(network.reload)
    with connect() as kept:
        assert kept.recv(1) == b"!"
        on_node(lambda: nft.apply("delete table inet tdead\n"))
        on_node(lambda: network.close("ours"))
        check_reset(kept)
    assert not on_node(network.is_intact), "others may have been asleep as well"
    on_node(network.reload)
    assert network.may_lack_ports == {"ours"} and asleep() == []
    on_node(lambda: network.close("ours"))
    assert asleep() == [SLOT] and on_node(network.is_intact)


def test_a_syn_sent_while_the_slot_went_is_refused_at_its_repetition(hosts):
    silent = ("add table inet q\n"
              "add chain inet q in { type filter hook input priority 0; policy drop; }")
    namespaces.in_namespace("tdead-slot", lambda: nft.apply(silent))
    refused = []

    def attempt():
        try:
            connect(timeout=20).close()
        except OSError as error:
            refused.append(error)

    waiting = threading.Thread(target=attempt)
    waiting.start()
    time.sleep(0.3)
    end_slot()
    waiting.join(20)
    assert isinstance(refused[0], ConnectionRefusedError)


def test_a_new_connection_is_refused_at_once(hosts):
    end_slot()
    with pytest.raises(ConnectionRefusedError):
        connect()


def test_tenants_ports_may_be_for_the_edge_s_hosts_only(hosts):
    connect("192.0.2.11").close()
    load(EDGE)
    connect(EDGE).close()
    with pytest.raises(TimeoutError):
        connect("192.0.2.11", timeout=1.5)
    load()
    connect("192.0.2.11").close()


@pytest.mark.parametrize("port", [TENANT, AGENT])
def test_answers_reach_a_guest_whose_connection_got_a_port_that_is_closed_to_others(hosts, port):
    load(EDGE)
    ip(f"-n tdead-edge addr add {PUBLIC}/32 dev inside")
    ip(f"-n tdead-node route add {PUBLIC}/32 dev tdead-e")
    with namespaces.in_namespace("tdead-edge", lambda: socket.create_server(
            (PUBLIC, 443))) as public:
        namespaces.in_namespace("tdead-slot", lambda: socket.create_connection(
            (PUBLIC, 443), 5, (SLOT, port))).close()
        link, peer = public.accept()
        link.close()
        assert peer == (NODE, port)


def test_the_refusal_is_made_and_removed_as_often_as_one_likes(hosts):
    def routes():
        return subprocess.run(["ip", "route", "show", "type", "unreachable"], text=True,
                              capture_output=True, check=True).stdout

    def twice():
        links.refuse(NETWORK)
        made = routes()
        links.remove_refusal(NETWORK)
        links.remove_refusal(NETWORK)
        return made, routes()
    made, left = on_node(twice)
    assert NETWORK in made and left == ""


def test_a_node_notices_that_forwarding_was_switched_off(network):
    def lost_and_found():
        network.reload()
        assert network.is_intact()
        subprocess.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"], check=True)
        assert not network.is_intact()
        network.reload()
        assert network.is_intact() and ip_forwarding.is_on()
    on_node(lost_and_found)


def test_the_policy_is_listed_again_only_after_a_change(network, monkeypatch):
    def looks():
        network.reload()
        assert network.is_intact()
        with monkeypatch.context() as without_nft:
            without_nft.setenv("PATH", "")
            assert network.is_intact()
        nft.apply("add table inet tdead2\n")  # of others
        with monkeypatch.context() as without_nft, pytest.raises(FileNotFoundError):
            without_nft.setenv("PATH", "")
            network.is_intact()
        assert network.is_intact()
        nft.apply("insert rule inet tdead from_guest accept\n")
        assert not network.is_intact() and not network.is_intact()
        network.reload()
        assert network.is_intact()
        nft.apply("delete table inet tdead\n")
        assert not network.is_intact()
        network.reload()
        assert network.is_intact()
    on_node(looks)


def test_a_node_that_goes_never_takes_forwarding_from_one_that_comes(hosts, tmp_path):
    """Both look and switch; in between the other must not."""
    asked, go_on = threading.Event(), threading.Event()
    going, coming = tmp_path / "going", tmp_path / "coming"

    def others_need_it():
        asked.set()
        go_on.wait(10)
        return False

    def inside(work):
        thread = threading.Thread(target=on_node, args=(work,))
        thread.start()
        return thread

    going.touch()
    leaves = inside(lambda: ip_forwarding.restore(going, others_need_it))
    assert asked.wait(10)
    comes = inside(lambda: ip_forwarding.enable(coming))
    comes.join(0.3)
    go_on.set()
    leaves.join()
    comes.join()
    assert on_node(ip_forwarding.is_on)
    assert coming.exists() and not going.exists()
