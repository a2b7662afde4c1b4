"""A capture and an export begin only where the floor of free space is left by what they write."""
import os

import pytest

from nodeworker.disks import sparse
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.driver import NoDiskSpace
from tests.host.disk_node import BLOCK, Node, leave

RAM_BYTES = 2 << 20


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def sleeper(node, monkeypatch):
    """A sandbox with memory that cannot be shared, half of whose RAM file it never used."""
    monkeypatch.setattr(sparse, "share_extents", lambda source, target: False)
    sleeper = node.create()
    ram = node.host.rundir(sleeper).ram
    ram.write_bytes(os.urandom(RAM_BYTES))
    os.truncate(ram, 2 * RAM_BYTES)
    return sleeper


def test_a_capture_has_room_for_its_memory_or_leaves_nothing(node, sleeper, monkeypatch):
    node.write(sleeper, 1, 1)
    leave(node, monkeypatch, RAM_BYTES - 1)
    for _ in range(2):
        with pytest.raises(NoDiskSpace):
            node.driver.snapshot(sleeper, "none")
    assert not any(node.host.snapshots.iterdir())
    leave(node, monkeypatch, RAM_BYTES)
    taken = node.snapshot(sleeper)
    assert (node.host.snapshots / taken / "ram").read_bytes() == (
        node.host.rundir(sleeper).ram.read_bytes())
    node.check_exact()


def test_memory_that_is_shared_takes_no_room(node, sleeper, monkeypatch):
    def share(source, target):
        sparse.copy_ranges(source, target, sparse.data_ranges(source))
        return True

    monkeypatch.setattr(sparse, "share_extents", share)
    leave(node, monkeypatch, 0)
    node.snapshot(sleeper)


def test_an_export_has_room_for_its_copy_of_the_layers_and_for_the_file(
        node, tmp_path, monkeypatch):
    box = node.create()
    for block in range(2):
        node.write(box, block, 1)
        taken = node.snapshot(box)
    layers = node.chain("snapshots", taken)[1:]
    most = 2 * sum(occupied_bytes(node.host.layers.path(layer)) for layer in layers)
    assert len(layers) == 3 and most > 2 * 2 * BLOCK
    leave(node, monkeypatch, most - 1)
    (tmp_path / "work").mkdir()
    with pytest.raises(NoDiskSpace):
        node.driver.export_disk(taken, tmp_path / "work" / "disk")
    assert not any((tmp_path / "work").iterdir())
    leave(node, monkeypatch, most)
    node.driver.export_disk(taken, tmp_path / "work" / "disk")
    assert (tmp_path / "work" / "disk").stat().st_size
