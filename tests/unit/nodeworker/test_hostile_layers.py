"""Disk layers that a hostile QEMU process has written, and what it says of them: nothing that reads
them follows them to other files, and no file of others is removed or given to be written to."""
import os
import struct
from dataclasses import replace

import pytest

from nodeworker.disks import qcow2
from nodeworker.disks.qcow2 import UnsafeLayer, check_overlay
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.operations.recover import settle_chain
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import BLOCK, BLOCKS, Node, qemu

SIZE = BLOCK * BLOCKS
SECRET = b"nobody but root reads this\n" * 100


@pytest.fixture
def secret(tmp_path):
    """A file of root's, as large as a disk."""
    path = tmp_path / "secret"
    path.write_bytes(SECRET.ljust(SIZE, b"."))
    path.chmod(0o600)
    return path


def checked(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        check_overlay(descriptor)
    finally:
        os.close(descriptor)


def with_data_file(path, secret):
    """Its content is in another file, which qemu-img opens by the name in the header."""
    kept = secret.read_bytes()
    qemu("qemu-img", "create", "-q", "-f", "qcow2", "-o",
         f"data_file={secret},data_file_raw=on,preallocation=metadata", str(path), str(SIZE))
    secret.write_bytes(kept)


def with_backing_file(path, secret):
    qemu("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(secret), "-F", "raw", str(path))


def with_backing_file_of_any_format(path, secret):
    qemu("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(secret), "-F", "raw", str(path))
    qemu("qemu-img", "rebase", "-q", "-u", "-b", str(secret), "-F", "raw", str(path))


def patched(offset, content):
    def craft(path, secret):
        qcow2.create_overlay(path, SIZE)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), content, offset)
    return craft


CRAFTED = {
    "data file": with_data_file,
    "backing file": with_backing_file,
    "backing file again": with_backing_file_of_any_format,
    "unknown feature": patched(72, struct.pack(">Q", 1 << 40)),
    "corrupt": patched(72, struct.pack(">Q", 2)),
    "encrypted": patched(32, struct.pack(">I", 1)),
    "snapshots inside": patched(60, struct.pack(">I", 1)),
    "name of a data file": patched(112, struct.pack(">II", 0x44415441, 8) + b"/etc/pas"),
    "endless extensions": patched(112, struct.pack(">II", 1, 8).ljust(16, b"x") * 5000),
    "another version": patched(4, struct.pack(">I", 2)),
    "no qcow2": patched(0, b"RAW!"),
    "cut": lambda path, secret: path.write_bytes(b"QFI"),
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED)
def test_a_header_that_leads_elsewhere_is_refused(tmp_path, secret, craft):
    craft(tmp_path / "layer", secret)
    with pytest.raises(UnsafeLayer):
        checked(tmp_path / "layer")


def test_what_we_make_and_what_qemu_makes_of_it_is_taken(tmp_path):
    path = tmp_path / "layer"
    qcow2.create_overlay(path, SIZE)
    checked(path)
    qemu("qemu-io", "-c", f"write -P 7 0 {BLOCK}", "-c", f"discard 0 {BLOCK}", str(path))
    qemu("qemu-img", "resize", "-q", "-f", "qcow2", str(path), str(2 * SIZE))
    qemu("qemu-img", "rebase", "-q", "-u", "-b", "", str(path))
    checked(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("craft", [with_data_file, with_backing_file])
@pytest.mark.parametrize("position", [0, 1], ids=["lower", "upper"])
def test_an_export_reads_and_writes_no_file_that_a_layer_names(tmp_path, secret, craft, position):
    node = Node(tmp_path)
    box = node.create()
    node.write(box, 3, 33)
    first = node.snapshot(box)
    copy = node.create(first)
    node.write(copy, 4, 44)
    second = node.snapshot(copy)
    layers = [node.host.layers.path(each) for each in node.chain("snapshots", second)[2:]]
    assert len(layers) == 2
    layers[position].unlink()
    craft(layers[position], secret)
    target = tmp_path / "out" / "disk.qcow2"
    target.parent.mkdir()
    with pytest.raises(DriverError):
        node.driver.export_disk(second, target)
    assert SECRET[:27] not in (target.read_bytes() if target.exists() else b"")
    assert secret.read_bytes() == SECRET.ljust(SIZE, b".")
    with pytest.raises(UnsafeLayer):
        node.host.layers.open(node.chain("snapshots", second)[2 + position], writable=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("forged", ["its size", "one block, again and again"])
def test_an_export_writes_no_more_than_there_is_room_for(tmp_path, monkeypatch, forged):
    node = Node(tmp_path)
    box = node.create()
    node.write(box, 3, 33)
    snapshot_id = node.snapshot(box)
    layer = node.host.layers.path(node.chain("snapshots", snapshot_id)[-1])
    asked = []
    monkeypatch.setattr(node.host.disk_floor, "check", asked.append)
    with layer.open("r+b") as file:
        if forged == "its size":
            os.pwrite(file.fileno(), struct.pack(">Q", 4 * SIZE), 24)
        else:
            table, = struct.unpack(">Q", os.pread(file.fileno(), 8, 40))
            entry, = struct.unpack(">Q", os.pread(file.fileno(), 8, table))
            blocks = os.pread(file.fileno(), 8 * BLOCKS, entry & (1 << 56) - 512)
            data = next(each for each in struct.unpack(f">{BLOCKS}Q", blocks) if each)
            os.pwrite(file.fileno(), struct.pack(">Q", data) * BLOCKS, entry & (1 << 56) - 512)
    target = tmp_path / "disk.qcow2"
    if forged == "its size":
        with pytest.raises(DriverError, match="larger than it is"):
            node.driver.export_disk(snapshot_id, target)
    else:
        node.driver.export_disk(snapshot_id, target)
        assert max(asked) >= SIZE > asked[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_an_honest_export_holds_every_block_and_names_no_file_of_this_host(tmp_path):
    node = Node(tmp_path)
    box = node.create()
    for number in range(3):
        node.write(box, number, 10 + number)
        box = node.create(node.snapshot(box))
    node.write(box, 1, 99)
    snapshot_id = node.snapshot(box)
    target = tmp_path / "out" / "disk.qcow2"
    target.parent.mkdir()
    node.driver.export_disk(snapshot_id, target)
    checked_raw = tmp_path / "exported.raw"
    qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(target), str(checked_raw))
    content = checked_raw.read_bytes()
    assert {each: content[each * BLOCK] for each in range(BLOCKS) if content[each * BLOCK]} == \
        node.snapshots[snapshot_id]
    assert str(tmp_path).encode() not in target.read_bytes()
    assert target.stat().st_uid == 0 and list(target.parent.iterdir()) == [target]


class Liar:
    """The monitor of a QEMU that says what it likes of where it writes to."""

    def __init__(self, node_name):
        self._node_name = node_name
        self.closed = []

    def active_node(self):
        return self._node_name

    def run(self, command, arguments):
        assert command == "blockdev-del"
        self.closed.append(arguments["node-name"])


def dead_snapshot(node, box, *added):
    """The machine of a sandbox whose snapshot died, with these layers on top of its chain."""
    vm = Vm(node.host, node.host.rundir(box))
    machine = replace(vm.machine, chain=(*vm.machine.chain, *added))
    vm.write(replace(vm.record, machine=machine, phase=Phase.RUNNING, task=Task.SNAPSHOT),
             durable=True)
    return vm


def new_layer(node):
    reference = node.host.layers.new_reference()
    node.host.layers.create(reference, SIZE)
    return reference


def only_its_own(node):
    return dead_snapshot(node, node.create())


def none_of_its_own(node):
    vm = dead_snapshot(node, node.create())
    machine = replace(vm.machine, chain=vm.machine.base)
    vm.write(replace(vm.record, machine=machine), durable=True)
    return vm


def on_a_frozen_one(node):
    box = node.create()
    node.write(box, 1, 11)
    node.snapshot(box)
    return dead_snapshot(node, box)


def frozen_itself(node):
    top = new_layer(node)
    node.host.layers.freeze(top)
    return dead_snapshot(node, node.create(), top)


def written_to(node):
    box = node.create()
    vm = dead_snapshot(node, box, new_layer(node))
    node.write(box, 1, 11)
    return vm


TOPS = [only_its_own, none_of_its_own, on_a_frozen_one, frozen_itself, written_to]


@pytest.mark.parametrize("top", TOPS, ids=[each.__name__ for each in TOPS])
def test_no_layer_is_taken_off_that_a_snapshot_cannot_just_have_added(tmp_path, top):
    node = Node(tmp_path)
    vm = top(node)
    chain = vm.machine.chain
    for told in (argv.node_name(chain[-2]), "template", "image", "nothing", "x" * 100_000):
        if told != argv.node_name(chain[-1]):
            with pytest.raises(DriverError) as error:
                settle_chain(vm, Liar(told))
            assert len(str(error.value)) < 200
    assert vm.machine.chain == chain == node.host.rundir(vm.sandbox_id).chain()
    node.check_complete()


def test_a_layer_that_qemu_never_switched_to_is_taken_off(tmp_path):
    node = Node(tmp_path)
    box, added = node.create(), new_layer(node)
    node.write(box, 1, 11)
    vm = dead_snapshot(node, box, added)
    before = vm.machine.chain[:-1]
    node_name, monitor = argv.node_name(added), Liar(argv.node_name(added))
    settle_chain(vm, monitor)
    assert (vm.machine.chain, monitor.closed) == ((*before, added), [])
    monitor = Liar(argv.node_name(before[-1]))
    settle_chain(vm, monitor)
    assert vm.machine.chain == before
    assert monitor.closed == [node_name, argv.file_name(node_name)]
    node.check_exact()
    node.check_content("sandboxes", box)


def test_only_what_one_machine_has_alone_is_opened_to_be_written_to(tmp_path):
    node = Node(tmp_path)
    layers, box = node.host.layers, node.create()
    node.write(box, 1, 11)
    node.snapshot(box)
    *shared, own = node.chain("sandboxes", box)
    assert [each.partition(":")[0] for each in shared] == ["image", "template", "layer"]
    for reference in shared:
        with pytest.raises(UnsafeLayer):
            layers.open(reference, writable=True)
        os.close(layers.open(reference, writable=False))
    in_the_making = "template:small.tmp"
    layers.path(in_the_making).parent.mkdir()
    layers.create(in_the_making, SIZE)
    for reference in (own, in_the_making):
        os.close(layers.open(reference, writable=True))
