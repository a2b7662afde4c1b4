"""The one opening for guests, with real packets: two nodes of one machine, with two guests and one.

Their gateways are programs of the test that say who they are and whom they see."""
import contextlib
import resource
import socket
import threading
import time

import pytest

from config import guest_gateway
from nodeworker.network import links, namespaces, nft
from nodeworker.network.ruleset import GATEWAY_MOST, OPENED_AT_ONCE, OPENED_PER_S
from tests.host.guest_places import guest_places, ip
from tests.stack.waiting import until

GATEWAY = (guest_gateway.ADDRESS, guest_gateway.PORT)
OUTSIDE, NOBODY = "tgw-outside", "9.9.9.55"


def say(listener, name, taken):
    """Tell each caller `name` and the address that it comes from; keep the connection."""
    with contextlib.suppress(OSError):
        while True:
            link, peer = listener.accept()
            taken.append(link)
            link.sendall(f"{name} {peer[0]}".encode())


@contextlib.contextmanager
def gateway(name, address="127.0.0.1"):
    taken = []
    with socket.create_server((address, 0), backlog=512) as listener:
        server = threading.Thread(target=say, args=(listener, name, taken))
        server.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    for link in taken:
        link.close()


@pytest.fixture(scope="module")
def many_files():
    """Both ends of all connections are files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 16384 if hard == resource.RLIM_INFINITY else min(hard, 16384)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def nodes(many_files):
    """Guests of the first node, those of the second, the ports of their gateways."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(gateway(name)) for name in ("first", "second")]
        first = stack.enter_context(guest_places("tgwa", "10.251.0.0/24", ports[0], count=2))
        second = stack.enter_context(guest_places("tgwb", "10.252.0.0/24", ports[1]))
        yield first, second, ports


def heard(place, target=GATEWAY, source=None, namespace=None, patience_s=20):
    """What the one who answers there says; None if nobody does."""
    def call():
        try:
            with socket.create_connection(
                    target, patience_s, (source, 0) if source else None) as link:
                link.settimeout(5)
                return link.recv(100).decode()
        except OSError:
            return None
    return namespaces.in_namespace(namespace, call) if namespace else place.run(call)


def test_a_guest_reaches_its_own_node_s_gateway_which_knows_it_by_its_slot(nodes):
    (one, other), (third,), _ = nodes
    assert heard(one) == f"first {one.address}"
    assert heard(other) == f"first {other.address}"
    assert heard(third) == f"second {third.address}"


def test_it_reaches_nothing_else_of_the_host(nodes):
    (one, other), (third,), ports = nodes
    with gateway("any", "0.0.0.0") as anything:
        hosts = ("127.0.0.1", one.slot.host_address, third.slot.host_address,
                 guest_gateway.ADDRESS, "169.254.169.254", "169.254.42.2")
        targets = [(host, port) for host in hosts for port in (anything, *ports)]
        targets += [(host, guest_gateway.PORT) for host in hosts if host != GATEWAY[0]]
        targets += [(other.address, anything), (third.address, anything)]
        assert heard(one), "the road is open"
        # All at once: what is dropped in silence takes its time.
        found = {}
        callers = [threading.Thread(target=lambda each=each: found.update(
            {each: heard(one, each, patience_s=2)}))
                   for each in targets]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert {each: text for each, text in found.items() if text} == {}


@pytest.mark.slow
def test_a_forged_source_is_dropped(nodes):
    (one, other), (third,), _ = nodes
    for forged in (other.address, third.address, "172.30.0.9", "9.9.9.9"):
        ip(f"-n {one.guest} addr add {forged}/32 dev eth0")
        try:
            assert heard(one, source=forged, patience_s=1) is None
        finally:
            ip(f"-n {one.guest} addr del {forged}/32 dev eth0")
    # And by whoever has got as far as the slot, and opened it.
    slot = one.slot.namespace
    namespaces.in_namespace(slot, lambda: nft.apply("insert rule inet slot input accept\n"
                                                    "insert rule inet slot output accept\n"))
    ip(f"-n {slot} addr add {other.address}/32 dev up")
    try:
        assert heard(one, namespace=slot) == f"first {one.address}"
        assert heard(one, source=other.address, namespace=slot, patience_s=1) is None
    finally:
        ip(f"-n {slot} addr del {other.address}/32 dev up")
        links.renew_rules(one.slot)


def test_from_outside_it_is_closed(nodes):
    (one, _), _, ports = nodes
    namespaces.create_namespace(OUTSIDE)
    try:
        for line in (f"link add tgw-o type veth peer name inside netns {OUTSIDE}",
                     "link set tgw-o up", "addr add 192.0.2.129/30 dev tgw-o",
                     f"-n {OUTSIDE} link set inside up", f"-n {OUTSIDE} link set lo up",
                     f"-n {OUTSIDE} addr add 192.0.2.130/30 dev inside",
                     f"-n {OUTSIDE} route add default via 192.0.2.129"):
            ip(line)
        with gateway("road", "0.0.0.0") as road:
            assert heard(None, ("192.0.2.129", road), namespace=OUTSIDE) == "road 192.0.2.130"
        for target in (GATEWAY, (GATEWAY[0], ports[0]), (one.slot.host_address, ports[0]),
                       ("192.0.2.129", ports[0]), ("192.0.2.129", guest_gateway.PORT)):
            assert heard(None, target, namespace=OUTSIDE, patience_s=1) is None, target
    finally:
        namespaces.delete_namespace(OUTSIDE)


def test_a_guest_has_a_limit_of_connections_and_takes_none_of_another_s(nodes):
    (one, other), _, _ = nodes

    def fill():
        made = []
        for _ in range(GATEWAY_MOST + 20):
            with contextlib.suppress(OSError):
                made.append(socket.create_connection(GATEWAY, 2))
        return made

    with contextlib.ExitStack() as opened:
        made = [opened.enter_context(link) for link in one.run(fill)]
        assert GATEWAY_MOST - 10 <= len(made) <= GATEWAY_MOST
        with pytest.raises(ConnectionRefusedError):
            one.run(lambda: socket.create_connection(GATEWAY, 20))
        assert heard(other) == f"first {other.address}"


def test_a_guest_that_opens_and_closes_connections_is_slowed_down_and_no_other(nodes):
    """The kernel counts no closed ones among those that a guest has, yet remembers them."""
    (one, other), _, _ = nodes

    def hurry():
        """How many were answered until three were not: one alone may be a busy machine's doing."""
        answered = silent = 0
        while silent < 3 and answered < 2 * OPENED_AT_ONCE:
            try:
                socket.create_connection(GATEWAY, 0.5).close()
            except ConnectionRefusedError:
                pass  # has too many, as closed ones are not taken off the count at once
            except OSError:
                silent += 1
                continue
            answered += 1
        return answered

    began = time.monotonic()
    made = one.run(hurry)
    assert made > OPENED_AT_ONCE / 2, "what ended it is the limit, and nothing else"
    assert made <= OPENED_AT_ONCE + OPENED_PER_S * (time.monotonic() - began)
    assert heard(other) == f"first {other.address}"
    assert heard(one) == f"first {one.address}", "it waits, and has its turn"


def test_a_stream_of_datagrams_that_nobody_answers_is_one_connection(nodes):
    """The kernel calls all of them new, as long as there is no answer."""
    (_, other), _, _ = nodes
    streamed, ended = [0], threading.Event()

    def stream():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.connect((NOBODY, 9))
            while not ended.is_set():
                link.send(b"x")
                streamed[0] += 1

    ip(f"route replace blackhole {NOBODY}/32")
    try:
        streaming = threading.Thread(target=other.run, args=(stream,))
        streaming.start()
        until(lambda: streamed[0] > 2 * OPENED_AT_ONCE)
        assert heard(other, patience_s=2.9) == f"first {other.address}"
    finally:
        ended.set()
        streaming.join()
        ip(f"route del blackhole {NOBODY}/32")
