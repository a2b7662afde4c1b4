"""What becomes of a sandbox where a second thing fails while the first is put right, and where a
failure comes between what QEMU knows and what is in its files."""
import os
import time

import pytest

from nodeworker.hypervisor.driver import DriverError, StillStarting, VmBusy
from nodeworker.hypervisor.factory import make_driver
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.host.driver_checks import chain_of, check_alive, failing_once, with_note


def test_a_disk_whose_chain_has_become_short_is_whole_without_its_process(
        real, tmp_path, monkeypatch):
    """QEMU remembers for a while where it has copied something to."""
    monkeypatch.setattr(flatten, "_BYTES_PER_S", 1)  # no copy ends before all captures are made
    box = real.create()
    for number in range(real.settings.chain_depth_limit + 1):
        real.shell(box, f"head -c 1000000 /dev/urandom > /root/noise{number}; sync")
        real.driver.snapshot(box.sandbox_id, f"snap{number}")
    sums = real.shell(box, "sha256sum /root/noise*")
    with Monitor.of(real.driver.host.rundir(box.sandbox_id)) as monitor:
        monitor.run("block-job-set-speed", {"device": flatten._JOB, "speed": 0})
        while monitor.run("query-block-jobs"):
            time.sleep(0.02)
    before = len(chain_of(real, box))
    real.crash_at("hibernate.begun", tmp_path, "hibernate", box.sandbox_id)
    real.kill_machine(box.sandbox_id)
    assert len(chain_of(real, box)) < before
    assert real.driver.wake(box).cold
    assert real.shell(box, "sha256sum /root/noise*") == sums


@pytest.mark.parametrize("captured_first", [False, True], ids=["woken", "captured and woken"])
def test_a_layer_that_a_power_failure_took_is_renewed_below_another(
        real, tmp_path, captured_first):
    source = with_note(real)
    real.shell(source, "sync")
    real.driver.snapshot(source.sandbox_id, "snap")
    fork = real.create("snap")
    real.shell(fork, "echo lost > /root/lost; sync")
    layer = real.driver.host.layers.path(chain_of(real, fork)[-1])
    real.crash_at("snapshot.layer_recorded", tmp_path, "snapshot", fork.sandbox_id, "later")
    real.kill_machine(fork.sandbox_id)
    size = layer.stat().st_size
    os.truncate(layer, 0)
    os.truncate(layer, size)
    if captured_first:
        real.driver.snapshot(fork.sandbox_id, "later")
        check_alive(real, real.create("later"), b"first")
    assert real.driver.wake(fork).cold
    check_alive(real, fork, b"first")


def test_a_guest_stands_while_its_record_says_that_it_is_saved(real, monkeypatch):
    """The record is there, and its flush fails; so does the next write."""
    box = with_note(real)
    write, failed = RunDir.write, []

    def fail(rundir, record, *, durable):
        if record.phase is Phase.SAVED and not failed:
            failed.append(write(rundir, record, durable=durable))
            raise OSError("cannot flush")
        if len(failed) == 1:
            failed.append(record)
            raise OSError("no descriptor left")
        return write(rundir, record, durable=durable)

    monkeypatch.setattr(RunDir, "write", fail)
    with pytest.raises(DriverError):
        real.driver.hibernate(box.sandbox_id)
    assert len(failed) == 2
    with Monitor.of(real.driver.host.rundir(box.sandbox_id)) as monitor:
        assert monitor.run("query-status")["status"] != "running"
    assert not real.driver.wake(box).cold
    check_alive(real, box, b"first")


def test_a_fork_whose_host_fails_before_its_guest_moves_has_its_memory_at_the_next_try(
        real, monkeypatch):
    source = with_note(real)
    real.shell(source, "echo captured > /dev/shm/memory")
    real.driver.snapshot(source.sandbox_id, "carrier", transient=True)
    failing_once(monkeypatch, Monitor, "limit_io")
    fork = real.spec("carrier")
    with pytest.raises(DriverError):
        real.driver.create(fork)
    assert not real.driver.create(fork).cold
    assert real.shell(fork, "cat /dev/shm/memory") == "captured\n"


@pytest.mark.parametrize("tries", [1, 2])
def test_a_cold_boot_that_dies_before_its_guest_moves_is_begun_again(real, tmp_path, tries):
    box = with_note(real)
    real.shell(box, "sync")
    real.kill_machine(box.sandbox_id)
    for _ in range(tries):
        real.crash_at("boot.spawned", tmp_path, "wake", box)
    assert real.driver.wake(box).cold
    check_alive(real, box, b"first")


def test_no_guest_is_captured_before_it_has_answered(real):
    box = with_note(real)
    real.shell(box, "sync")
    real.kill_machine(box.sandbox_id)
    with pytest.raises(StillStarting):
        make_driver(real.settings).wake(box)
    with pytest.raises(VmBusy):
        real.driver.snapshot(box.sandbox_id, "snap")
    assert real.driver.wake(box).cold
    check_alive(real, box, b"first")
