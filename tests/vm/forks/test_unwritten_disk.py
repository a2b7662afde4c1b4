"""A capture of a running sandbox whose top disk layer is empty adds none, and has the same disk."""
import os

import pytest

from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.qemu.operations import snapshot
from tests.host.driver_checks import check_disks

# From here on nothing is written but what is flushed.
LAZY = "echo 0 > /proc/sys/vm/dirty_writeback_centisecs; mount -o remount,commit=300 /; sync"
ON_DISK = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum /root/disk"


@pytest.fixture
def box(real):
    """A running sandbox with a megabyte of noise on its disk, captured as `snap0`."""
    spec = real.create()
    real.agent(spec).write_file("/root/disk", os.urandom(1 << 20))
    real.shell(spec, LAZY)
    real.driver.snapshot(spec.sandbox_id, "snap0")
    return spec


def chain_of(lab, spec):
    return lab.driver.host.rundir(spec.sandbox_id).chain()


def test_captures_between_which_nothing_is_written_share_a_disk(real, box):
    chain = chain_of(real, box)
    real.shell(box, "echo in memory > /dev/shm/later; echo in the page cache > /root/later")
    size_bytes = real.driver.snapshot(box.sandbox_id, "snap1").size_bytes
    assert chain_of(real, box) == chain
    directory = real.settings.node_dir / "snapshots" / "snap1"
    assert size_bytes == sum(occupied_bytes(directory / name) for name in ("ram", "state"))
    real.shell(box, "echo on the disk > /root/later; sync")
    for name, told in (("snap0", ""), ("snap1", "in memory\nin the page cache\n")):
        fork = real.create(name)
        assert real.shell(fork, "cat /dev/shm/later /root/later 2>/dev/null; true") == told
        assert real.shell(fork, ON_DISK) == real.shell(box, ON_DISK)
    real.driver.snapshot(box.sandbox_id, "snap2")
    assert chain_of(real, box)[:-1] == chain
    real.driver.hibernate(box.sandbox_id)
    check_disks(real)
    for name in ("snap0", "snap1"):
        real.driver.delete_snapshot(name)
    assert real.shell(real.create("snap2"), "cat /root/later") == "on the disk\n"


def test_what_is_written_while_a_capture_begins_is_in_it(real, box, monkeypatch):
    chain, reached = chain_of(real, box), []

    def write(point):
        if point == "snapshot.ram_begun":
            real.shell(box, "echo late > /root/late; sync")
        reached.append(point)

    monkeypatch.setattr(snapshot, "fault", write)
    real.driver.snapshot(box.sandbox_id, "snap1")
    assert reached.count("snapshot.stopped") == 2 and chain_of(real, box)[:-1] == chain
    told = f"{ON_DISK} /root/late"
    assert real.shell(real.create("snap1"), told) == real.shell(box, told)
