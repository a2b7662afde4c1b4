"""What a create, a fork and a deletion read of a node does not depend on how many directories are
there: the files they open are counted at 1,000 and at 2,500."""
import shutil
import sys
import threading
from contextlib import contextmanager

import pytest

from nodeworker.hypervisor.qemu.operations.create import _clear
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import Node

_counters: list[tuple[int, list[object]]] = []


def _count(event, arguments):
    if event in ("open", "os.scandir", "os.listdir"):
        for thread, counter in _counters:
            if thread == threading.get_ident():
                counter.append(arguments[0])


# It cannot be removed again, so there is one, which counts while somebody wants it to.
sys.addaudithook(_count)


@contextmanager
def opened():
    """The files that are opened and the directories that are listed in the block, by this thread:
    another removes what is in the trash."""
    counter = threading.get_ident(), []
    _counters.append(counter)
    try:
        yield counter[1]
    finally:
        _counters.remove(counter)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def crowd(node, count):
    """Directories of sandboxes that sleep, until there are `count`."""
    pattern = node.create()
    known = node.host.rundir(pattern).path
    for number in range(len(list(node.host.sandboxes.iterdir())), count):
        path = node.host.sandboxes / f"crowd{number}"
        path.mkdir()
        shutil.copy(known / "vm.json", path / "vm.json")


def lives(node):
    """Each step of the lives of a sandbox, its snapshots and forks, with what it opened."""
    found = {}
    fresh = node.host.rundir(node.new_name("fresh"))
    with opened() as found["create"], fresh.operation(create=True):
        _clear(Vm(node.host, fresh))
    source = node.create()
    node.write(source, 1, 11)
    with opened() as found["snapshot"]:
        capture = node.snapshot(source)
    with opened() as found["fork"]:
        fork = node.create(capture)
    other = node.create()
    for step, remove, name in (
        ("delete of a plain sandbox", node.driver.destroy, other),
        ("delete of a capture that was forked", node.driver.delete_snapshot, capture),
        ("delete of a fork", node.driver.destroy, fork),
        ("delete of nothing", node.driver.delete_snapshot, "neverwas"),
    ):
        with opened() as found[step]:
            remove(name)
    with opened() as found["delete of the last that had a shared layer"]:
        node.driver.destroy(source)
    return {step: len(files) for step, files in found.items()}


def test_with_2500_directories_no_more_is_opened_than_with_1000(node):
    crowd(node, 1000)
    few = lives(node)
    crowd(node, 2500)
    many = lives(node)
    # Only reading every record can tell that a layer which was shared is needed by nobody.
    walk = "delete of the last that had a shared layer"
    assert few.pop(walk) > 1000 and many.pop(walk) > 2500
    assert many == few
    assert max(many.values()) < 80, many
