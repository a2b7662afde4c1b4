"""A node directory with real disk layers and no virtual machine, and what must be on its disks."""
import json
import signal
import subprocess
from dataclasses import replace

from config.settings import load
from nodeworker.disks import directory_id, qcow2
from nodeworker.disks.durable import read_json, write_json
from nodeworker.disks.layers import warm_image_reference
from nodeworker.hypervisor.driver import MachineSpec, Shape
from nodeworker.hypervisor.qemu.disk.layer_references import references
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.records import Machine, Phase, write_warm_image
from nodeworker.hypervisor.qemu.restoring.clone import record_new_sandbox
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.driver_worker import run_worker

SHAPE = Shape(1, 64)
BLOCK = 64 * 1024
BLOCKS = 16


class Node:
    """A node directory, and what every sandbox and snapshot on it must hold: the number in each
    block of its disk."""

    def __init__(self, directory, name="node"):
        self.directory = directory
        self.environ = {
            "SVC_NODE_DIR": str(directory / name), "SVC_IMAGE_DIR": str(directory / "images"),
            "SVC_ACCELERATOR": "tcg", "SVC_NET_PREFIX": "svclayertest", "SVC_RAM_SPARES": "0",
            "SVC_PREPARED_PROCESSES": "0", "SVC_SLOT_POOL": "0"}
        if not (directory / "images").exists():
            make_image(directory / "images", "base")
        self.restart()
        directory_id.make(directory / name)
        if not self.host.find_warm_image(SHAPE):
            make_warm_image(self.host)
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
        spec = MachineSpec(self.new_name("box"), SHAPE, "token", 20000, snapshot_id=snapshot_id)
        rundir = self.host.rundir(spec.sandbox_id)
        with rundir.operation(create=True):
            vm = Vm(self.host, rundir)
            record_new_sandbox(vm, spec)
            for path in (rundir.ram, rundir.state):
                path.write_bytes(b"saved")
            rundir.write_tokens("token")
            vm.write(replace(vm.record, phase=Phase.SAVED, task=None), durable=True)
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
        code = run_worker({**self.environ, "SVC_FAULT_FILE": str(fault)}, 60, operation, *arguments)
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


def make_warm_image(host):
    """A warm image of `SHAPE` as `bake` publishes it."""
    directory = host.warm_image_dir(SHAPE)
    directory.mkdir(parents=True)
    qcow2.create_overlay(directory / "disk.qcow2", BLOCKS * BLOCK)
    blank = host.blank_machine(SHAPE)
    machine = Machine(SHAPE, (*blank.chain, warm_image_reference(directory.name)), blank.disk_bytes,
                      blank.made_on)
    write_warm_image(directory, machine)
    write_json(directory / "token", {"token": "token"})
    for name in ("ram", "state"):
        (directory / name).write_bytes(b"saved")
    return directory


def leave(node, monkeypatch, free_bytes):
    """Let its disk have so much free beyond its floor."""
    floor = node.host.disk_floor
    found = replace(floor.space(), free_bytes=floor.bytes + free_bytes)
    monkeypatch.setattr(type(floor), "space", lambda _: found)


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
