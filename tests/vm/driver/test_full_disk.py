"""Machines on a disk that runs full: a real file system of 2.4 GB in which two of them fit."""
import contextlib
import os
import subprocess
import time

import pytest

from bin.stack import running as stacks
from nodeworker.disks.reserve_blocks import MIB, space_of
from nodeworker.hypervisor.driver import NoDiskSpace, VmState
from nodeworker.hypervisor.host_facts import DiskPause
from nodeworker.hypervisor.qemu.disk.write_pace import SLOW_BYTES_PER_S
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from tests.host.driver_lab import SHAPE, Lab

FLOOR_MB = 64
WRITE = (
    "until [ -e /dev/shm/go ]; do sleep 0.1; done; fsfreeze --unfreeze / && "
    "dd if=/dev/urandom of=/root/noise bs=1M count=24 conv=fsync && "
    "sha256sum /root/noise > /root/sum && sync && touch /root/done"
)


@pytest.fixture(scope="module")
def small_lab(clean_host, tmp_path_factory):
    """A node of its own whose directory is a mounted file."""
    folder = tmp_path_factory.mktemp("full")
    mounted = folder / "mounted"
    mounted.mkdir()
    with (folder / "disk.img").open("wb") as file:
        file.truncate(2400 * MIB)
    subprocess.run(["mkfs.ext4", "-q", str(folder / "disk.img")], check=True)
    subprocess.run(["mount", "-o", "loop", str(folder / "disk.img"), str(mounted)], check=True)
    stack = stacks.private_stack(
        "test-full", {
            "SVC_DRIVER": "qemu", "SVC_NODE_DIR": str(mounted / "node"), "SVC_RAM_SPARES": "0",
            "SVC_WARM_SPARES": "0", "SVC_PREPARED_PROCESSES": "0",
            "SVC_DISK_FLOOR_MB": str(FLOOR_MB)
        }, processes=())
    try:
        stack.ensure_images()
        lab = Lab(stack.site.values)
        lab.driver.bake(SHAPE)
        yield lab
        lab.clean()
    finally:
        stack.destroy()
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


@contextlib.contextmanager
def filled(lab):
    """Nothing is free for anybody but root."""
    path = lab.settings.node_dir / "filler"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space_of(lab.settings.node_dir).free_bytes)
        for _ in range(100):  # what else was given back meanwhile
            left = space_of(lab.settings.node_dir).free_bytes
            if left:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), left)
            time.sleep(0.02)
    try:
        yield
    finally:
        path.unlink()


def clear(lab):
    """Remove everything, and wait for its blocks to be free."""
    lab.clean()
    until(lambda: space_of(lab.settings.node_dir).free_bytes > 2000 * MIB)


def until(probe, limit_s=90):
    deadline = time.monotonic() + limit_s
    while not probe():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.1)


def test_what_runs_keeps_its_memory_and_waits_with_its_writes_and_nothing_new_begins(small_lab):
    lab, driver = small_lab, small_lab.driver
    writer, bystander = lab.create(), lab.create()
    with pytest.raises(NoDiskSpace):
        lab.create()
    assert set(driver.list_sandboxes()) == {writer.sandbox_id, bystander.sandbox_id}
    nonce = lab.shell(bystander, "echo $RANDOM | tee /dev/shm/nonce")
    lab.agent(writer).exec(shell=WRITE, detached=True)
    for spec in (writer, bystander):  # which write of themselves now and then, and would wait early
        lab.shell(spec, "sync; fsfreeze --freeze /")
    with filled(lab):
        with pytest.raises(NoDiskSpace):
            driver.snapshot(bystander.sandbox_id, "none")
        with pytest.raises(NoDiskSpace):
            driver.grow_disk(bystander.sandbox_id, 20 * 1024**3)
        touched = "python3 -c 'print(len(b\"x\" * (600 << 20)))'"
        told = lab.agent(bystander).exec(shell=touched, timeout_ms=120_000)
        assert int(told.stdout) == 600 << 20
        assert lab.shell(bystander, "cat /dev/shm/nonce") == nonce
        lab.shell(writer, "touch /dev/shm/go")
        until(lambda: driver.resume_if_paused(writer.sandbox_id) is DiskPause.WAITING)
        assert driver.inspect(writer.sandbox_id) is VmState.RUNNING
        assert driver.resume_if_paused(bystander.sandbox_id) is None
    assert driver.resume_if_paused(writer.sandbox_id) is DiskPause.RESUMED
    assert driver.resume_if_paused(writer.sandbox_id) is None
    until(lambda: lab.agent(writer).exec(["test", "-e", "/root/done"]).exit_code == 0)
    lab.shell(writer, "echo 3 > /proc/sys/vm/drop_caches; sha256sum --check /root/sum")
    lab.shell(bystander, "fsfreeze --unfreeze /")
    driver.hibernate(bystander.sandbox_id)
    assert not driver.wake(bystander).cold
    assert lab.shell(bystander, "cat /dev/shm/nonce") == nonce


@contextlib.contextmanager
def left(lab, wanted_bytes):
    """So much is free."""
    path = lab.settings.node_dir / "filler"
    with path.open("wb") as file:
        free = space_of(lab.settings.node_dir).free_bytes
        os.posix_fallocate(file.fileno(), 0, free - wanted_bytes)
    try:
        yield
    finally:
        path.unlink()


def test_before_the_disk_is_full_guests_write_slowly_and_then_freely_again(small_lab):
    lab, driver = small_lab, small_lab.driver
    clear(lab)
    spec = lab.create()
    two_mb = "dd if=/dev/urandom of=/root/two bs=1M count=2 conv=fsync"
    assert driver.pace_writes() is None
    with left(lab, (FLOOR_MB - 8) * MIB):
        assert driver.pace_writes() is None, "nothing new begins, what runs is left alone"
    with left(lab, (FLOOR_MB // 2 - 8) * MIB):
        assert driver.pace_writes() is True and driver.pace_writes() is None
        began = time.monotonic()
        lab.shell(spec, two_mb)
        assert time.monotonic() - began > 1.5 * MIB / SLOW_BYTES_PER_S
        sleeper = driver.hibernate(spec.sandbox_id) or driver.wake(spec)
        assert not sleeper.cold and driver.pace_writes() is None
        assert paces(lab, spec) == [SLOW_BYTES_PER_S], "woken meanwhile, and slow as the others"
    assert driver.pace_writes() is False and driver.pace_writes() is None
    assert paces(lab, spec) == [lab.settings.vm_io_mb_s * MIB]
    lab.shell(spec, two_mb)


def paces(lab, spec):
    with Monitor.of(lab.driver.host.rundir(spec.sandbox_id)) as monitor:
        return [each["inserted"]["bps_wr"] for each in monitor.run("query-block")]


def test_a_wake_without_room_for_its_memory_fails_and_loses_nothing(small_lab):
    lab, driver = small_lab, small_lab.driver
    clear(lab)
    spec = lab.create()
    nonce = lab.shell(spec, "echo $RANDOM | tee /dev/shm/nonce")
    driver.hibernate(spec.sandbox_id)
    with filled(lab):
        with pytest.raises(NoDiskSpace):
            driver.wake(spec)
        assert driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not driver.wake(spec).cold
    assert lab.shell(spec, "cat /dev/shm/nonce") == nonce


def test_a_capture_without_room_for_its_memory_writes_none_of_it(small_lab):
    lab, driver = small_lab, small_lab.driver
    clear(lab)
    spec = lab.create()
    nonce = lab.shell(spec, "echo $RANDOM | tee /dev/shm/nonce")
    monitor = driver.host.rundir(spec.sandbox_id).monitor

    def disk_nodes():
        with Monitor(monitor) as asked:
            return {node["node-name"] for node in asked.run("query-named-block-nodes")}

    before = disk_nodes()
    with left(lab, (FLOOR_MB + 24) * MIB):
        for _ in range(2):
            with pytest.raises(NoDiskSpace, match=r"[1-9]\d* MB are needed"):
                driver.snapshot(spec.sandbox_id, "none")
        assert driver.inspect(spec.sandbox_id) is VmState.RUNNING
        assert lab.shell(spec, "cat /dev/shm/nonce") == nonce
        assert disk_nodes() == before
    assert not driver.list_snapshots()
    assert driver.snapshot(spec.sandbox_id, "some").has_memory
    assert lab.shell(spec, "cat /dev/shm/nonce") == nonce


def test_what_a_guest_deletes_is_free_on_the_host(small_lab):
    lab = small_lab
    clear(lab)
    spec = lab.create()
    layer = lab.driver.host.layers.path(
        lab.driver.host.rundir(spec.sandbox_id).find_record().machine.chain[-1])

    def occupied():
        return layer.stat().st_blocks * 512

    lab.shell(spec, "head -c 120M /dev/urandom > /root/noise; sync")
    assert occupied() > 120 * MIB
    lab.shell(spec, "rm /root/noise; sync")
    until(lambda: occupied() < 40 * MIB)


GROW = (
    "until [ -e /dev/shm/go ]; do sleep 0.1; done; python3 -c \""
    "import time\nheld = []\nfor _ in range(600):\n"
    "    held.append(bytearray(b'x' * (1 << 20)))\n    time.sleep(0.01)\n"
    "print(sum(map(len, held)))\" > /dev/shm/grown; sleep 1000"
)


def occupied_mb(lab, spec):
    return lab.driver.host.rundir(spec.sandbox_id).ram.stat().st_blocks * 512 // MIB


def test_machines_beyond_the_memory_of_a_node_have_a_share_and_are_held_before_the_disk_is_full(
        small_lab):
    lab = Lab({**small_lab.environ, "SVC_NODE_MEM_MB": str(SHAPE.mem_mb)}, small_lab.numbers)
    driver = lab.driver
    clear(lab)
    whole, *others = [lab.create() for _ in range(4)]
    assert occupied_mb(lab, whole) >= SHAPE.mem_mb
    assert all(occupied_mb(lab, spec) < SHAPE.mem_mb * lab.settings.ram_share for spec in others)
    every = (whole, *others)
    nonces = [lab.shell(spec, "echo $RANDOM | tee /dev/shm/nonce") for spec in every]
    grower, sleeper, _ = others
    lab.agent(grower).exec(shell=GROW, detached=True)
    with left(lab, lab.driver.host.ram_shares.unused_bytes() + (FLOOR_MB + 40) * MIB):
        assert driver.hold_growing() == []
        lab.shell(grower, "touch /dev/shm/go")
        held = []
        until(lambda: held.extend(driver.hold_growing()) or held)
        assert held == [grower.sandbox_id] and driver.hold_growing() == []
        assert driver.inspect(grower.sandbox_id) is VmState.RUNNING
        assert driver.resume_if_paused(grower.sandbox_id) is DiskPause.WAITING
        with pytest.raises(NoDiskSpace):
            lab.create()
        touched = "python3 -c 'print(len(b\"x\" * (600 << 20)))'"
        told = lab.agent(whole).exec(shell=touched, timeout_ms=120_000)
        assert int(told.stdout) == 600 << 20, "what is its own it has all the while"
        driver.hibernate(sleeper.sandbox_id)
        assert not driver.wake(sleeper).cold, "a share is enough to wake with"
        driver.hibernate(grower.sandbox_id)
        assert not driver.wake(grower).cold and driver.hold_growing() == [grower.sandbox_id]
    assert driver.resume_if_paused(grower.sandbox_id) is DiskPause.RESUMED
    until(lambda: lab.shell(grower, "cat /dev/shm/grown").strip() == str(600 << 20))
    assert [lab.shell(spec, "cat /dev/shm/nonce") for spec in every] == nonces


def test_before_the_last_of_the_disk_is_taken_all_that_may_grow_is_held(small_lab):
    lab = Lab({**small_lab.environ, "SVC_NODE_MEM_MB": str(SHAPE.mem_mb)}, small_lab.numbers)
    clear(lab)
    whole, *others = [lab.create() for _ in range(3)]
    with left(lab, (FLOOR_MB // 4 - 8) * MIB):
        assert set(lab.driver.hold_growing()) == {spec.sandbox_id for spec in others}
        assert lab.shell(whole, "echo goes on") == "goes on\n"
    for spec in others:
        assert lab.driver.resume_if_paused(spec.sandbox_id) is DiskPause.RESUMED
        assert lab.shell(spec, "echo goes on") == "goes on\n"
