"""Stacks side by side on one host never overlap in names, addresses, ports or user ids."""
import contextlib
import ipaddress
import itertools
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bin.console import Advice
from bin.stack import host_shares, leftovers
from bin.stack.free_ports import choose_ports, free_port, is_free
from bin.stack.host_shares import SHARES, Share
from bin.stack.site import PREFERRED
from tests.stack.waiting import until

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
    monkeypatch.setattr("bin.stack.free_ports.free_port", lambda preferred=0: next(picked))
    assert choose_ports({"redis": 0, "s3": 0}) == {"redis": 40001, "s3": 40002}


@pytest.fixture
def stack_directory(tmp_path, monkeypatch):
    """Makes directories of stacks for a host of their own, that has room for two and no VM of
    another stack: one that runs here beside the tests holds nothing of theirs."""
    monkeypatch.setattr(host_shares, "CLAIMS", tmp_path / "claims")
    monkeypatch.setattr(host_shares, "SHARES", 2)
    monkeypatch.setattr(Share, "net_prefix", property(lambda share: f"tried{share.number}"))

    def make(name, *, owned=True):
        made = tmp_path / name
        made.mkdir(parents=True)
        if owned:
            leftovers.write_owner(made)
        return made
    return make


def test_a_full_host_is_told_with_the_stacks_that_fill_it(stack_directory):
    first, second = (stack_directory(name) for name in ("test-1", "test-2"))
    assert [host_shares.claim_share(each) for each in (first, second, first)] == [
        Share(0), Share(1), Share(0)]
    with pytest.raises(Advice, match=f"(?s){first}.*{second}"):
        host_shares.claim_share(stack_directory("test-3"))
    host_shares.release_share(second)
    assert host_shares.share_of(second) is None
    assert host_shares.claim_share(stack_directory("test-4")) == Share(1)


def test_the_claim_of_a_killed_session_lapses_once_nothing_of_it_lives(stack_directory):
    killed = stack_directory("test-killed", owned=False)
    host_shares.claim_share(killed)
    with subprocess.Popen(["sleep", "600"], env={"SVC_DATA_DIR": str(killed)},
                          stdin=subprocess.DEVNULL, start_new_session=True) as left:
        try:
            # The kernel lets Popen return a moment before it shows the environment.
            until(lambda: Path(f"/proc/{left.pid}/environ").read_bytes(), timeout_s=5)
            assert host_shares.claim_share(stack_directory("test-1")) == Share(1)
        finally:
            left.kill()
    assert host_shares.claim_share(stack_directory("test-2")) == Share(0)
    assert host_shares.share_of(killed) is None


def test_of_many_that_find_a_lapsed_claim_one_gets_it(stack_directory):
    for name, owned in (("test-living", True), ("test-killed", False)):
        host_shares.claim_share(stack_directory(name, owned=owned))
    asking = [stack_directory(f"test-{number}") for number in range(8)]

    def claims(data_dir):
        with contextlib.suppress(Advice):
            return host_shares.claim_share(data_dir)
    with ThreadPoolExecutor(len(asking)) as at_once:
        assert [each for each in at_once.map(claims, asking) if each] == [Share(1)]


def test_a_development_stack_that_is_down_keeps_its_share(stack_directory):
    sleeping = stack_directory("checkout/var", owned=False)
    host_shares.claim_share(sleeping)
    assert host_shares.claim_share(stack_directory("test-1")) == Share(1)
    assert host_shares.share_of(sleeping) == Share(0)


def test_after_a_reboot_each_stack_gets_the_share_that_it_had(stack_directory):
    """Claims are gone then, and whoever starts first may be the one that had the second."""
    first, second = stack_directory("one/var"), stack_directory("two/var")
    had = Share(1).net_prefix
    assert host_shares.claim_share(second, known_prefix=had) == Share(1)
    with pytest.raises(Advice, match=f"(?s){second} has claimed.*{had}"):
        host_shares.claim_share(first, known_prefix=had)
    assert host_shares.share_of(first) is None, "with another its sandboxes' ports would change"


def test_a_private_stack_takes_what_development_stacks_take_last(stack_directory):
    assert host_shares.claim_share(stack_directory("test-1"), private=True) == Share(1)
    assert host_shares.claim_share(stack_directory("checkout/var")) == Share(0)
