"""Deleting frees exactly what nothing else needs: random lives of sandboxes and snapshots, workers
dying among them.

The real driver works on real disk layers, of sandboxes that are always asleep, so that no machine
is started.
"""
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from bin.stack.site import ROOT
from config.settings import load
from nodeworker.disks import qcow2
from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor.driver import DriverError, LaunchSpec, Shape, VmNotFound
from nodeworker.hypervisor.qemu.disk.references import references
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.operations.create import take_references
from nodeworker.hypervisor.qemu.records import Machine, Phase

SHAPE = Shape(1, 64)
BLOCK = 64 * 1024
BLOCKS = 16
DEATHS = {
    "snapshot": ("snapshot.flushed", "snapshot.complete"),
    "destroy": ("destroy.begun", "destroy.killed", "destroy.network_freed", "destroy.files_removed",
                "collect.unlinked"),
    "delete_snapshot": ("delete.begun", "delete.files_removed", "collect.unlinked"),
}


class Node:
    """A node directory, and what every sandbox and snapshot on it must hold: the number in each
    block of its disk."""

    def __init__(self, directory, name="node"):
        self.directory = directory
        self.environ = {
            "SVC_NODE_DIR": str(directory / name), "SVC_IMAGE_DIR": str(directory / "images"),
            "SVC_ACCELERATOR": "tcg", "SVC_NET_PREFIX": "svclayertest"}
        if not (directory / "images").exists():
            make_image(directory / "images", "base")
        self.restart()
        if not self.host.find_template(SHAPE):
            make_template(self.host)
        self.sandboxes, self.snapshots = {}, {}
        self.names = iter(range(10_000))

    def restart(self):
        """Another life of the worker."""
        self.driver = QemuDriver(load(self.environ))
        self.host = self.driver.host
        self.host.__dict__["counter_khz"] = 1

    def new_name(self, kind):
        return f"{kind}{next(self.names)}"

    def create(self, snapshot_id=None):
        """A new sandbox, asleep as soon as it is made."""
        spec = LaunchSpec(self.new_name("box"), SHAPE, "token", 20000, snapshot_id=snapshot_id)
        rundir = self.host.rundir(spec.sandbox_id)
        with rundir.operation(create=True):
            _, record = take_references(self.host, rundir, spec)
            for path in (rundir.ram, rundir.state):
                path.write_bytes(b"saved")
            rundir.write_tokens("token")
            rundir.write(replace(record, phase=Phase.SAVED, task=None), durable=True)
        self.sandboxes[spec.sandbox_id] = dict(self.snapshots[snapshot_id] if snapshot_id else {})
        return spec.sandbox_id

    def write(self, sandbox_id, block, number):
        """What the guest does to its disk while it is awake."""
        chain = self.chain("sandboxes", sandbox_id)
        qemu("qemu-io", "-c", f"write -P {number} {block * BLOCK} {BLOCK}",
             opened(self.host.layers, chain, True))
        self.sandboxes[sandbox_id][block] = number

    def snapshot(self, sandbox_id):
        snapshot_id = self.new_name("snap")
        self.driver.snapshot(sandbox_id, snapshot_id)
        self.snapshots[snapshot_id] = dict(self.sandboxes[sandbox_id])
        return snapshot_id

    def die_in(self, operation, point, *arguments):
        """Begin an operation in a worker that is killed at `point`."""
        fault = self.directory / "fault"
        fault.write_text(f"{point} kill")
        code = subprocess.run(
            [sys.executable, "-m", "tests.vm.worker", operation,
             json.dumps(arguments)], cwd=ROOT, check=False,
            env={**os.environ, **self.environ, "SVC_FAULT_FILE": str(fault)}, timeout=60).returncode
        assert code == -signal.SIGKILL and not fault.exists(), f"{operation} never came to {point}"

    def chain(self, kind, name):
        if kind == "sandboxes":
            return self.host.rundir(name).chain()
        return tuple(read_json(self.host.snapshots / name / "snapshot.json")["machine"]["chain"])

    def layers(self):
        return {
            f"layer:{path.stem}"
            for path in self.host.layers.directory.glob("*.*")
            if path.suffix != ".lock"
        }

    def check_complete(self):
        """Every file that any record names is there."""
        assert all(
            self.host.layers.path(each).exists()
            for each in references(self.host.settings.node_dir))

    def check_exact(self):
        """What the model knows is there, with all its layers, and not one layer more."""
        assert set(self.driver.list_sandboxes()) == set(self.sandboxes)
        assert self.driver.list_snapshots() == set(self.snapshots)
        self.check_complete()
        named = {
            each for each in references(self.host.settings.node_dir) if each.startswith("layer:")
        }
        assert self.layers() == named

    def check_content(self, kind, name):
        """Every block of the disk, read through the whole chain."""
        raw = self.directory / "raw"
        qemu("qemu-img", "convert", "-O", "raw",
             opened(self.host.layers, self.chain(kind, name), False), str(raw))
        content = raw.read_bytes()
        found = {block: content[block * BLOCK] for block in range(BLOCKS) if content[block * BLOCK]}
        assert found == getattr(self, kind)[name], f"{kind} {name}"


def make_image(image_dir, key):
    """An image that is enough for disks: nobody boots it."""
    directory = image_dir / "images" / key
    directory.mkdir(parents=True)
    with (directory / "rootfs.raw").open("wb") as rootfs:
        rootfs.truncate(BLOCKS * BLOCK)
    write_json(
        directory / "image.json", {
            "key": key, "machine": "microvm", "cmdline": "", "kernel": "vmlinuz", "initrd": None,
            "rootfs": "rootfs.raw", "cpu": "max", "agentToken": "token"
        })
    current = image_dir / "images" / "current"
    current.unlink(missing_ok=True)
    current.symlink_to(key)


def make_template(host):
    """A template of `SHAPE` as `bake` publishes it."""
    directory = host.template_dir(SHAPE)
    directory.mkdir(parents=True)
    qcow2.create_overlay(directory / "disk.qcow2", BLOCKS * BLOCK)
    blank = host.blank_machine(SHAPE)
    machine = Machine(SHAPE, (*blank.chain, f"template:{directory.name}"), blank.disk_bytes,
                      blank.made_on)
    write_json(directory / "template.json", machine.to_json())
    write_json(directory / "token", {"token": "token"})
    for name in ("ram", "state"):
        (directory / name).write_bytes(b"saved")
    return directory


def opened(layers, chain, writable):
    """A chain as the qemu tools take it: layers do not name what they stand on."""
    node = None
    for reference in chain:
        file = {"driver": "file", "filename": str(layers.path(reference)), "locking": "off"}
        below = {"backing": node} if node else {}
        node = {"driver": "qcow2" if node else "raw", "file": file, "read-only": True} | below
    node["read-only"] = not writable
    return f"json:{json.dumps(node)}"


def qemu(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "failed" not in done.stdout, done.stdout + done.stderr


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def step(node, chance):
    """One random operation, after which the model and the host must agree."""
    boxes, snaps = sorted(node.sandboxes), sorted(node.snapshots)
    deed = chance.choice(
        ["create", "fork", "fork", "write", "write", "snapshot", "snapshot", "destroy", "delete"])
    if deed == "create" or not boxes and not snaps:
        node.create()
    elif deed == "fork" and snaps:
        node.create(chance.choice(snaps))
    elif deed == "write" and boxes:
        node.write(chance.choice(boxes), chance.randrange(BLOCKS), chance.randrange(1, 256))
    elif deed == "snapshot" and boxes:
        node.snapshot(chance.choice(boxes))
    elif deed == "destroy" and boxes:
        name = chance.choice(boxes)
        node.driver.destroy(name)
        del node.sandboxes[name]
    elif deed == "delete" and snaps:
        name = chance.choice(snaps)
        node.driver.delete_snapshot(name)
        del node.snapshots[name]


@pytest.mark.parametrize("seed", range(3))
def test_random_lives_leave_every_disk_whole_and_no_layer_too_many(node, seed):
    chance = random.Random(seed)
    for _ in range(60):
        step(node, chance)
        node.check_exact()
    for kind in ("sandboxes", "snapshots"):
        for name in getattr(node, kind):
            node.check_content(kind, name)
    for name in node.sandboxes:
        node.driver.destroy(name)
    for name in node.snapshots:
        node.driver.delete_snapshot(name)
    assert node.layers() == set()


@pytest.mark.parametrize(("operation", "point"),
                         [(name, point) for name, points in DEATHS.items() for point in points])
def test_a_worker_killed_while_deleting_takes_nothing_that_is_needed_and_the_next_frees_the_rest(
    node, operation, point
):
    source = node.create()
    node.write(source, 1, 11)
    kept = node.snapshot(source)
    node.write(source, 2, 22)
    doomed = node.snapshot(source)
    node.write(source, 3, 33)
    fork = node.create(kept)
    node.write(fork, 4, 44)
    arguments = {
        "snapshot": (source, "another"), "destroy": (source, ), "delete_snapshot": (doomed, )
    }[operation]
    if operation == "delete_snapshot":
        node.driver.destroy(source)
        del node.sandboxes[source]
    node.die_in(operation, point, *arguments)
    node.check_complete()
    node.check_content("sandboxes", fork)
    node.check_content("snapshots", kept)
    getattr(node.driver, operation)(*arguments)
    if operation == "snapshot":
        node.snapshots["another"] = dict(node.sandboxes[source])
    elif operation == "destroy":
        del node.sandboxes[source]
    else:
        del node.snapshots[doomed]
    node.check_exact()
    for kind in ("sandboxes", "snapshots"):
        for name in getattr(node, kind):
            node.check_content(kind, name)


def test_a_snapshot_deleted_under_a_fork_or_an_export_harms_neither(node, tmp_path):
    source = node.create()
    node.write(source, 1, 11)
    snapshot_id = node.snapshot(source)
    node.driver.destroy(source)
    fork = node.create(snapshot_id)
    node.driver.delete_snapshot(snapshot_id)
    node.sandboxes.pop(source), node.snapshots.pop(snapshot_id)
    node.check_exact()
    node.check_content("sandboxes", fork)
    with pytest.raises(VmNotFound):
        node.driver.export_disk(snapshot_id, tmp_path / "disk")
    with pytest.raises(VmNotFound):
        node.create(snapshot_id)


def test_nothing_is_deleted_while_any_record_cannot_be_read(node, caplog):
    source = node.create()
    node.write(source, 1, 11)
    snapshot_id = node.snapshot(source)
    record = node.host.snapshots / snapshot_id / "snapshot.json"
    whole = record.read_bytes()
    for torn in (b"", whole[:40], b"{}"):
        record.write_bytes(torn)
        node.driver.destroy(source)
        assert len(node.layers()) == 2 and "cannot be read" in caplog.text
        with pytest.raises(DriverError):
            node.driver.disk_use()
    record.write_bytes(whole)
    del node.sandboxes[source]
    node.driver.collect_layers()
    node.check_exact()
    node.check_content("snapshots", snapshot_id)


def test_layers_that_a_shortened_chain_left_behind_are_collected(node):
    source = node.create()
    node.snapshot(source)
    rundir = node.host.rundir(source)
    record = rundir.find_record()
    rundir.write(record, durable=False)
    for name in list(node.snapshots):
        node.driver.delete_snapshot(name)
    chain = record.machine.chain
    rundir.write(replace(record, machine=replace(record.machine, chain=(*chain[:2], chain[-1]))),
                 durable=True)
    node.driver.collect_layers()
    assert node.layers() == {chain[-1]}


def test_each_layer_counts_once_for_the_eldest_that_needs_it(node):
    source = node.create()
    node.write(source, 0, 1)
    snapshot_id = node.snapshot(source)
    fork = node.create(snapshot_id)
    before = node.driver.disk_use()
    frozen = node.host.layers.path(node.chain("sandboxes", fork)[-2]).stat().st_blocks * 512
    assert frozen >= BLOCK
    assert before.sandboxes[source] > before.sandboxes[fork] + frozen / 2
    total = sum(before.sandboxes.values()) + sum(before.snapshots.values())
    node.driver.destroy(source)
    after = node.driver.disk_use()
    assert set(after.sandboxes) == {fork} and after.sandboxes[fork] == before.sandboxes[fork]
    assert after.snapshots[snapshot_id] >= before.snapshots[snapshot_id] + frozen
    assert sum(after.sandboxes.values()) + sum(after.snapshots.values()) < total
    assert after.node["images"] > 0 and after.node["templates"] > 0
