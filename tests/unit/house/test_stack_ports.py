"""Stacks side by side on one host never overlap in names, addresses, ports or user ids."""
import ipaddress
import itertools
import socket

from bin.stack.ports import SHARES, Share, choose_ports, free_port, is_free
from bin.stack.site import PREFERRED

ALL = [Share(number) for number in range(SHARES)]
PAIRS = list(itertools.permutations(ALL, 2))


def test_no_prefix_begins_another_because_clean_up_goes_by_prefix():
    assert not [pair for pair in PAIRS if pair[0].net_prefix.startswith(pair[1].net_prefix)]


def test_slot_networks_are_apart():
    networks = [ipaddress.ip_network(share.slot_network) for share in ALL]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))


def test_ports_are_apart_and_below_the_ephemeral_range():
    taken = [range(low, high + 1) for share in ALL
             for low, high in (share.host_ports, share.agent_ports,
                               (share.server_port(0), share.server_port(len(PREFERRED) - 1)))]
    assert not [pair for pair in itertools.combinations(taken, 2) if set(pair[0]) & set(pair[1])]
    assert max(ports[-1] for ports in taken) < 32768


def test_user_ids_leave_room_for_every_slot():
    bases = sorted(share.vm_uid_base for share in ALL)
    assert all(later - earlier >= 65536 for earlier, later in itertools.pairwise(bases))


def test_a_preferred_port_is_taken_only_while_free():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = server.getsockname()[1]
        assert not is_free(taken)
        assert free_port(taken) != taken
    assert free_port(taken) == taken


def test_two_servers_of_a_stack_never_get_one_port(monkeypatch):
    picked = iter((40001, 40001, 40001, 40002))
    monkeypatch.setattr("bin.stack.ports.free_port", lambda preferred=0: next(picked))
    assert choose_ports({"redis": 0, "s3": 0}) == {"redis": 40001, "s3": 40002}
