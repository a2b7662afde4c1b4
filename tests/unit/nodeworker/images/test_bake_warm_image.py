"""What a bake takes of the disk of the images, and leaves there: a small file system of its own."""
import os
import subprocess
from dataclasses import replace

import pytest

from nodeworker.disks import qcow2
from nodeworker.disks.layers import warm_image_reference
from nodeworker.disks.reserve_blocks import MIB, space_of
from nodeworker.hypervisor.driver import NoDiskSpace, Shape
from nodeworker.hypervisor.qemu.images import bake_warm_image
from nodeworker.hypervisor.qemu.operations import reclaim
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, find_warm_image
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import Node, make_image

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
DISK_MB, FLOOR_MB = 96, 32


@pytest.fixture
def node(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(images)],
                   check=True)
    try:
        make_image(images, "base")
        node = Node(tmp_path)
        node.environ |= {"SVC_DISK_FLOOR_MB": str(FLOOR_MB), "SVC_RAM_SHARE": "0.5"}
        node.restart()
        yield node
    finally:
        # The image is held for as long as this process lives.
        subprocess.run(["umount", "--lazy", str(images)], check=True)


def leave_half_made(node, shape):
    """What a bake whose worker was killed leaves."""
    directory = node.host.warm_image_dir(shape)
    left = directory.with_name(f"{directory.name}.tmp")
    left.mkdir()
    (left / "ram").write_bytes(b"memory")
    return left


def test_what_a_dead_bake_left_goes_with_the_next_start_of_the_node(node):
    left = leave_half_made(node, Shape(1, 128))
    reclaim._remove_half_made(node.host)
    assert not left.exists()


@pytest.mark.parametrize("mem_mb", [2 * DISK_MB, DISK_MB - FLOOR_MB + 1])
def test_memory_that_does_not_fit_beside_the_floor_is_not_reserved(node, mem_mb):
    shape = Shape(1, mem_mb)
    left = leave_half_made(node, shape)
    with pytest.raises(NoDiskSpace, match=f"{mem_mb} MB are needed and {FLOOR_MB} MB stay free"):
        node.driver.bake(shape)
    assert not left.exists() and not node.host.find_warm_image(shape)


def test_what_machines_are_still_to_have_is_free_on_a_disk_without_them(node, tmp_path):
    (tmp_path / "node" / "net" / "used" / "1.box").touch()
    rundir = node.host.rundir("box")
    rundir.path.mkdir()
    rundir.make_ram(1024)
    assert node.host.ram_shares.unused_bytes() == 512 * MIB
    images = space_of(node.host.image_dir)
    assert node.host.image_disk_floor.space() == images
    both = Node(tmp_path / "node", "on_one_disk").host
    assert both.image_disk_floor.space() == both.disk_floor.space()


def test_what_is_no_warm_image_makes_way_for_one(node):
    shape = Shape(1, 16)
    left = leave_half_made(node, shape)
    vm, target = Vm(node.host, RunDir(left)), node.host.warm_image_dir(shape)
    blank = node.host.blank_machine(shape)
    disk = warm_image_reference(left.name)
    qcow2.create_overlay(node.host.layers.path(disk), blank.disk_bytes)
    vm.write(SandboxRecord(left.name, replace(blank, chain=(*blank.chain, disk)), Phase.RUNNING,
                           None, boot_id(), agent_port=0, forwards=()), durable=False)
    vm.rundir.state.write_bytes(b"state")
    target.mkdir()
    (target / "ram").write_bytes(b"of another")
    bake_warm_image._publish(vm)
    assert find_warm_image(target) and (target / "ram").read_bytes() == b"memory"
    assert not left.exists()
