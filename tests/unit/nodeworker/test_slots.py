"""The pool of network slots where single slots fail; the host's network is not touched."""
import pytest

from nodeworker.network import addresses, links, namespaces
from nodeworker.network.slots import NoSlot, SlotPool


class Network:
    """Stands for the kernel; slots whose number is in `broken` cannot be removed, `unbuildable`
    ones not be made."""

    def __init__(self):
        self.broken, self.unbuildable, self.there = set(), set(), set()

    def build(self, slot, group):
        if slot.number in self.unbuildable:
            raise OSError(17, "File exists")
        self.there.add(slot.namespace)

    def remove(self, slot):
        if slot.number in self.broken:
            raise OSError(16, "Device or resource busy")
        self.there.discard(slot.namespace)


@pytest.fixture
def network(monkeypatch):
    made = Network()
    monkeypatch.setattr(links, "build_slot", made.build)
    monkeypatch.setattr(links, "remove_slot", made.remove)
    monkeypatch.setattr(namespaces, "namespace_exists", lambda name: name in made.there)
    monkeypatch.setattr(namespaces, "list_namespaces", lambda prefix: sorted(made.there))
    return made


@pytest.fixture
def pool(network, tmp_path):
    return SlotPool(tmp_path, "svct", "10.201.0.0/27", 2)


def names(pool, kind):
    return sorted(pool._names(kind))


def test_a_slot_that_cannot_be_removed_keeps_reclaim_from_nothing(pool, network):
    pool.fill()
    pool.claim("gone")
    pool.claim("alive")
    pool.claim("gone too")
    network.broken.add(0)
    pool.reclaim(lambda owner: owner == "alive")
    pool.fill()
    assert set(pool.owners()) == {"alive"} and len(pool.ready()) == 2
    assert names(pool, "dead") == ["0"] and 0 not in pool.ready()
    network.broken.clear()
    pool.reclaim(lambda owner: owner == "alive")
    assert names(pool, "dead") == [] and "svct-0" not in network.there


def test_a_destroy_goes_on_without_the_slot_that_cannot_be_removed(pool, network):
    slot = pool.claim("box")
    network.broken.add(slot.number)
    pool.release("box")
    assert pool.owners() == {} and names(pool, "dead") == [str(slot.number)]


@pytest.mark.parametrize("trouble", ["broken", "unbuildable"])
def test_a_number_that_cannot_be_used_is_passed_over(pool, network, trouble):
    getattr(network, trouble).add(0)
    assert pool.claim("box").number == 1


def test_a_host_that_can_build_no_slot_says_so(pool, network):
    network.unbuildable = set(range(15))
    for ask in (lambda: pool.claim("box"), pool.fill):
        with pytest.raises(OSError, match="File exists"):
            ask()
    assert names(pool, "making") == names(pool, "dead") == []


def test_a_pool_that_finds_no_more_numbers_is_as_full_as_it_can_be(pool, network):
    while len(pool.owners()) < addresses.slot_capacity("10.201.0.0/27") - 1:
        pool.claim(f"box {len(pool.owners())}")
    pool.fill()
    assert len(pool.ready()) == 1
    pool.claim("the last")
    pool.fill()
    assert pool.ready() == set()
    with pytest.raises(NoSlot):
        pool.claim("one more")


def test_a_namespace_nobody_knows_that_cannot_be_deleted_stops_nothing(pool, network, monkeypatch):
    network.there |= {"svct-8", "svct-9"}

    def delete(name):
        if name == "svct-8":
            raise OSError(16, "Device or resource busy")
        network.there.discard(name)

    monkeypatch.setattr(namespaces, "delete_namespace", delete)
    pool.reclaim(lambda owner: False)
    assert network.there == {"svct-8"}
