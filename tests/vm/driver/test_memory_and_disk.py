"""What a guest keeps over sleep, snapshot and fork: processes, memory and files to the last byte;
and what clones do not."""
import os
import signal
import time
from dataclasses import replace

import pytest

from nodeworker.hypervisor.driver import Shape, VmBusy, VmState
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from tests.host.driver_checks import chain_of, check_clock, check_disks, memory_copied_ahead
from tests.host.driver_lab import SHAPE
from tests.stack.waiting import until

CYCLES = 6
# A little larger only: flattening walks over what lies beyond smaller layers at its limited speed.
LARGER_BYTES = 33 * 1024**3 // 2
# A process that knows a nonce which is nowhere but in its memory, and tells it when it is asked.
KEEPER = """
import os, signal, time
nonce = os.urandom(16).hex()
def tell(*_):
    open('/dev/shm/told.new', 'w').write(nonce)
    os.rename('/dev/shm/told.new', '/dev/shm/told')
signal.signal(signal.SIGUSR1, tell)
open('/dev/shm/keeper.pid', 'w').write(str(os.getpid()))
tell()
while True:
    time.sleep(0.05)
    open('/dev/shm/beats', 'a').write('x')
"""
ASK = ("rm -f /dev/shm/told; kill -USR1 $(cat /dev/shm/keeper.pid); "
       "until cat /dev/shm/told 2>/dev/null; do sleep 0.02; done")
IDENTITY = (
    "cat /etc/machine-id /etc/hostname /etc/ssh/ssh_host_ed25519_key.pub; head -c 16 /dev/urandom |"
    " sha256sum"
)
SUMS = "sha256sum /dev/shm/memory /root/disk"


@pytest.fixture
def box(real):
    """A sandbox with the keeper, 4 MiB of noise in memory and on disk."""
    spec = real.create()
    agent = real.agent(spec)
    agent.write_file("/root/keeper.py", KEEPER.encode())
    agent.exec(shell="python3 /root/keeper.py", detached=True)
    agent.write_file("/dev/shm/memory", os.urandom(4 << 20))
    agent.write_file("/root/disk", os.urandom(4 << 20))
    real.shell(spec, "until test -s /dev/shm/beats; do sleep 0.05; done")
    return spec


def rundir_of(lab, spec):
    return lab.driver.host.rundir(spec.sandbox_id)


def test_the_connection_of_an_adoption_is_closed_when_the_first_caller_has_been_served(
        real, monkeypatch):
    established = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -c ' 01 '"
    spec = real.create()
    until(lambda: real.shell(spec, established) == "1\n")  # that of the question
    monkeypatch.setattr(adoption, "_CALM_S", 30.0)
    assert real.shell(real.create(), established) == "2\n"


def test_processes_memory_files_and_clock_survive_sleeps(real, box):
    nonce, sums = real.shell(box, ASK), real.shell(box, SUMS)
    for _ in range(CYCLES):
        real.driver.hibernate(box.sandbox_id)
        assert not real.driver.wake(box).cold
        check_clock(real.shell, box)
        assert (real.shell(box, ASK), real.shell(box, SUMS)) == (nonce, sums)
    real.driver.hibernate(box.sandbox_id)
    check_disks(real)


def test_a_fork_of_a_running_source_has_its_processes_and_the_source_never_stops(real, box):
    nonce, sums = real.shell(box, ASK), real.shell(box, SUMS)
    clones = []
    for number in range(3):
        beats = int(real.shell(box, "wc -c < /dev/shm/beats"))
        real.driver.snapshot(box.sandbox_id, f"snap{number}")
        clones.append(real.create(f"snap{number}"))
        assert int(real.shell(box, "sleep 0.3; wc -c < /dev/shm/beats")) > beats
    for spec in (box, *clones):
        assert (real.shell(spec, ASK), real.shell(spec, SUMS)) == (nonce, sums)
    for spec in clones:
        real.shell(spec, "sync; echo changed > /root/disk; sync")
    assert real.shell(box, SUMS) == sums
    for spec in (box, *clones):
        real.driver.hibernate(spec.sandbox_id)
    check_disks(real)


def test_clones_of_one_memory_are_different_computers(real, box):
    real.driver.snapshot(box.sandbox_id, "snap")
    clones = [real.create("snap") for _ in range(3)]
    identities = [real.shell(spec, IDENTITY).splitlines() for spec in (box, *clones, real.create())]
    for column in zip(*identities, strict=True):
        assert len(set(column)) == len(identities), column


def test_unsynced_files_are_in_the_snapshot_because_the_memory_is(real, box):
    sums = real.shell(box, "head -c 3000000 /dev/urandom > /root/fresh; sha256sum /root/fresh")
    real.driver.snapshot(box.sandbox_id, "snap")
    assert real.shell(real.create("snap"), "sha256sum /root/fresh") == sums


def test_a_state_of_another_host_is_not_loaded_but_booted_from_its_disk(real, box):
    real.shell(box, "sync")
    real.driver.hibernate(box.sandbox_id)
    record = rundir_of(real, box).find_record()
    elsewhere = replace(
        record.machine, made_on=replace(record.machine.made_on,
                                        hypervisor_version="another version"))
    rundir_of(real, box).write(replace(record, machine=elsewhere), durable=True)
    running = real.driver.wake(box)
    assert running.cold and "another version" in running.cold_reason
    assert len(real.agent(box).read_file("/root/disk", 5 << 20)) == 4 << 20
    real.driver.hibernate(box.sandbox_id)
    assert not real.driver.wake(box).cold


def test_a_damaged_state_is_not_loaded_but_booted_from_its_disk(real, box):
    real.shell(box, "sync")
    real.driver.hibernate(box.sandbox_id)
    state = rundir_of(real, box).state
    state.write_bytes(state.read_bytes()[:1000])
    running = real.driver.wake(box)
    assert running.cold and running.cold_reason
    assert len(real.agent(box).read_file("/root/disk", 5 << 20)) == 4 << 20


def test_a_shape_that_is_not_baked_boots_cold_and_sleeps_and_wakes_like_any_other(real):
    spec = real.spec(shape=Shape(2, 1280))
    assert real.driver.create(spec).cold
    assert real.shell(spec, "nproc").strip() == "2"
    real.driver.hibernate(spec.sandbox_id)
    assert not real.driver.wake(spec).cold
    assert real.agent(spec).ping().adopted == spec.sandbox_id


def test_a_bake_that_dies_leaves_nothing_that_could_be_taken_for_a_template(real, tmp_path):
    shape = Shape(1, 1152)
    path = tmp_path / "fault"
    path.write_text("bake.spawned kill")
    assert real.in_child("bake", shape, fault_file=path) < 0
    assert not real.driver.has_warm_image(shape)
    real.driver.reclaim()
    assert not any("-1x1152-" in name
                   for name in os.listdir(real.settings.image_dir / "templates")
                   if "lock" not in name)


def test_layers_are_deleted_when_nothing_refers_to_them(real, box):
    for number in range(3):
        real.driver.snapshot(box.sandbox_id, f"snap{number}")
    clone = real.create("snap1")
    real.driver.destroy(box.sandbox_id)
    for number in range(3):
        real.driver.delete_snapshot(f"snap{number}")
    real.driver.hibernate(clone.sandbox_id)
    assert not real.driver.wake(clone).cold
    real.driver.destroy(clone.sandbox_id)
    assert not list((real.settings.node_dir / "layers").glob("*.qcow2"))


def test_a_power_failure_in_the_middle_of_a_wake_is_not_mistaken_for_a_saved_memory(
        real, box, tmp_path):
    real.shell(box, "sync")
    real.driver.hibernate(box.sandbox_id)
    real.crash_at("wake.spawned", tmp_path, "wake", box)
    record = rundir_of(real, box).find_record()
    os.kill(record.pid, signal.SIGKILL)
    rundir_of(real, box).write(replace(record, boot_id="an earlier boot of the host"), durable=True)
    while real.driver.inspect(box.sandbox_id) is VmState.PARTIAL:
        time.sleep(0.01)
    assert real.driver.inspect(box.sandbox_id) is VmState.DISK_ONLY
    assert real.driver.wake(box).cold


def test_long_disk_chains_are_flattened_while_the_guest_runs(real, box):
    limit = real.settings.chain_depth_limit
    short = len(chain_of(real, box))
    for number in range(limit + 2):
        real.shell(
            box,
            f"echo {number} > /root/number; head -c 200000 /dev/urandom > /root/noise{number}; sync"
        )
        real.driver.snapshot(box.sandbox_id, f"snap{number}")
        if number == 1:  # from here on upper layers are larger than lower ones
            real.driver.grow_disk(box.sandbox_id, LARGER_BYTES)
            assert real.agent(box).grow_disk(LARGER_BYTES).total_bytes > 16 * 1024**3
            real.shell(box, "cp /root/disk /root/later; sync")
        with Monitor.of(real.driver.host.rundir(box.sandbox_id)) as monitor:
            while monitor.run("query-block-jobs"):
                time.sleep(0.02)
    sums = real.shell(box, "sha256sum /root/noise* /root/disk /root/later")
    real.driver.hibernate(box.sandbox_id)
    assert len(chain_of(real, box)) <= short + limit
    check_disks(real)
    real.driver.wake(box)
    assert real.shell(
        box,
        "echo 3 > /proc/sys/vm/drop_caches; sha256sum /root/noise* /root/disk /root/later") == sums
    for number in (0, limit + 1):
        assert real.shell(real.create(f"snap{number}"), "cat /root/number").strip() == str(number)


def captured(lab, spec, name):
    """Its layers; it is captured as a worker would, which comes again while it is busy."""
    while True:
        try:
            lab.driver.snapshot(spec.sandbox_id, name)
            return len(chain_of(lab, spec))
        except VmBusy:
            time.sleep(0.1)


@pytest.mark.parametrize("forks", [False, True], ids=["one", "forks of forks"])
def test_captures_in_quick_succession_do_not_lengthen_a_chain_for_ever(
        real, box, monkeypatch, forks):
    monkeypatch.setattr(flatten, "_BYTES_PER_S", 1)  # no capture is late enough for the copy
    monkeypatch.setattr(flatten, "_END_LIMIT_S", 0.1)
    limit, spec, lengths = real.settings.chain_depth_limit, box, [len(chain_of(real, box))]
    for number in range(2 * limit + 3):
        real.shell(spec, f"echo {number} >> /root/numbers; sync")
        lengths.append(captured(real, spec, f"snap{number}"))
        if forks:
            spec = real.create(f"snap{number}")
    assert max(lengths) == lengths[0] + 2 * limit
    for each in (spec, real.create(f"snap{number}")):
        wanted = "echo 3 > /proc/sys/vm/drop_caches; cat /root/numbers; " + SUMS
        said = real.shell(each, wanted)
        assert said.endswith(real.shell(box, SUMS)) and said.startswith(
            "".join(f"{line}\n" for line in range(number + 1)))
    for each in {spec.sandbox_id, box.sandbox_id}:
        real.driver.hibernate(each)
    check_disks(real)


def test_forks_of_a_sleeping_sandbox_do_not_lengthen_its_chain(real, box):
    real.driver.hibernate(box.sandbox_id)
    real.driver.snapshot(box.sandbox_id, "snap0")
    length = len(chain_of(real, box))
    real.driver.snapshot(box.sandbox_id, "snap1")
    assert len(chain_of(real, box)) == length
    assert real.shell(real.create("snap1"), SUMS) == real.shell(real.create("snap0"), SUMS)


def test_memory_copied_ahead_is_used_once_and_is_the_template_s(real):
    template = real.driver.host.warm_image_dir(SHAPE)
    real.create()
    spare = memory_copied_ahead(real)
    assert spare.read_bytes() == (template / "ram").read_bytes()
    first, second = real.create(), real.create()
    assert not spare.exists()
    assert len({real.shell(spec, "cat /etc/machine-id") for spec in (first, second)}) == 2
