"""A capture of a running sandbox whose top disk layer is empty adds none, and has the same disk."""
import os

import pytest

from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.operations import snapshot
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from tests.host.driver_checks import chain_of, check_disks, failing_once

# From here on nothing is written but what is flushed.
LAZY = "echo 0 > /proc/sys/vm/dirty_writeback_centisecs; mount -o remount,commit=300 /; sync"
NOTE_ON_DISK = "echo 3 > /proc/sys/vm/drop_caches; cat /root/note"
ON_DISK = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum /root/disk"


@pytest.fixture
def box(real):
    """A running sandbox with a megabyte of noise on its disk, captured as `snap0`."""
    spec = real.create()
    real.agent(spec).write_file("/root/disk", os.urandom(1 << 20))
    real.shell(spec, LAZY)
    real.driver.snapshot(spec.sandbox_id, "snap0")
    return spec


def test_captures_between_which_nothing_is_written_share_a_disk(real, box):
    chain = chain_of(real, box)
    real.shell(box, "echo in memory > /dev/shm/later; echo in the page cache > /root/later")
    facts = real.driver.snapshot(box.sandbox_id, "snap1")
    assert chain_of(real, box) == chain
    assert disk_bytes_of(real, facts) == 0
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


def disk_bytes_of(lab, facts):
    """What of a snapshot's size is its disk."""
    directory = lab.settings.node_dir / "snapshots" / facts.snapshot_id
    return facts.size_bytes - sum(occupied_bytes(directory / name) for name in ("ram", "state"))


@pytest.mark.parametrize("before", ["a death", "a fork"])
def test_a_disk_counts_for_the_first_that_keeps_it_whoever_has_begun_before(
        real, tmp_path, before):
    box = real.create()
    real.agent(box).write_file("/root/disk", os.urandom(1 << 20))
    real.shell(box, LAZY)
    if before == "a death":
        real.crash_at("snapshot.flushed", tmp_path, "snapshot", box.sandbox_id, "snap0")
    else:
        real.driver.snapshot(box.sandbox_id, "carrier", transient=True)
        real.create("carrier")
        real.driver.delete_snapshot("carrier")
    for name, has_disk in (("snap0", True), ("snap1", False)):
        facts = real.driver.snapshot(box.sandbox_id, name)
        assert (disk_bytes_of(real, facts) > 1 << 20) is has_disk, name


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


@pytest.mark.parametrize("captures", [0, 1])
def test_a_layer_that_qemu_never_switched_to_is_still_known_after_a_hibernate_that_fails(
        real, tmp_path, monkeypatch, captures):
    """Else the layer that QEMU writes to could be taken for one that the sandbox does without, or
    for one that nobody writes to."""
    box = real.create()
    for number in range(captures):
        real.shell(box, "echo before > /root/note; sync")
        real.driver.snapshot(box.sandbox_id, f"before{number}")
    real.shell(box, "echo first > /root/note; sync")
    real.crash_at("snapshot.layer_recorded", tmp_path, "snapshot", box.sandbox_id, "snap")
    failing_once(monkeypatch, Monitor, "active_node",
                 QmpError("the monitor did not answer in time"))
    with pytest.raises(DriverError):
        real.driver.hibernate(box.sandbox_id)
    real.driver.snapshot(box.sandbox_id, "snap")
    real.shell(box, "echo after | dd conv=notrunc,fsync status=none of=/root/note")
    real.driver.hibernate(box.sandbox_id)
    real.driver.collect_garbage()
    check_disks(real)
    assert not real.driver.wake(box).cold
    for machine, told in ((box, "after\n"), (real.create("snap"), "first\n")):
        assert real.shell(machine, NOTE_ON_DISK) == told
