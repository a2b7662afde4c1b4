"""The fork of a running sandbox takes the captured memory itself; whoever dies meanwhile, it has it
as it was captured, or boots from its disk and says so."""
import json
from dataclasses import replace

import pytest

from nodeworker.hypervisor.driver import DriverError, VmState
from tests.host.driver_checks import before, check_alive, memory_copied_ahead, points, with_note

NOTE = b"first"


@pytest.fixture
def source(real):
    """A running sandbox with something that is only in its memory."""
    spec = with_note(real, NOTE)
    real.shell(spec, "sync; echo captured > /dev/shm/memory")
    return spec


@pytest.fixture
def capture(real, source):
    """The directory of a transient capture of the source, which has gone on since."""
    real.driver.snapshot(source.sandbox_id, "carrier", transient=True)
    real.shell(source, "echo later > /dev/shm/memory")
    return real.settings.node_dir / "snapshots" / "carrier"


def ram_of(lab, spec):
    return lab.driver.host.rundir(spec.sandbox_id).ram


def check_fork(lab, spec):
    """It runs, with the memory of the capture."""
    check_alive(lab, spec, NOTE)
    assert lab.shell(spec, "cat /dev/shm/memory") == "captured\n"


def check_booted(lab, spec, told):
    """It runs from its disk, and what was to be told of that was."""
    assert told.cold
    check_alive(lab, spec, NOTE)
    assert lab.shell(spec, "ls /dev/shm") == ""


def test_a_fork_takes_the_file_and_leaves_the_source_alone(real, source, capture):
    captured = (capture / "ram").stat().st_ino
    fork = real.create("carrier")
    check_fork(real, fork)
    assert ram_of(real, fork).stat().st_ino == captured and not (capture / "ram").exists()
    assert real.shell(source, "cat /dev/shm/memory") == "later\n"
    real.driver.delete_snapshot("carrier")
    real.driver.hibernate(fork.sandbox_id)
    assert not real.driver.wake(fork).cold
    check_fork(real, fork)


@pytest.mark.parametrize("died_at", ["create.loaded", "create.running"])
def test_one_that_shares_the_capture_leaves_it_its_memory(real, capture, tmp_path, died_at):
    sharing = replace(real.spec("carrier"), shares_snapshot=True)
    real.crash_at(died_at, tmp_path, "create", sharing)
    assert not real.driver.create(sharing).cold
    check_fork(real, sharing)
    assert real.shell(sharing, "echo its own > /dev/shm/memory") == ""
    last = real.create("carrier")
    check_fork(real, last)
    assert not (capture / "ram").exists()
    assert real.shell(sharing, "cat /dev/shm/memory") == "its own\n"


@pytest.mark.parametrize("transient", [True, False], ids=["lent", "copied"])
def test_it_is_captured_onto_memory_copied_ahead(real, source, transient):
    ahead = memory_copied_ahead(real)
    number = ahead.stat().st_ino
    real.shell(source, "echo captured > /dev/shm/memory")
    real.driver.snapshot(source.sandbox_id, "carrier", transient=transient)
    captured = real.settings.node_dir / "snapshots" / "carrier" / "ram"
    assert captured.stat().st_ino == number and not ahead.exists()
    check_fork(real, real.create("carrier"))
    assert memory_copied_ahead(real) != ahead


@pytest.mark.parametrize("point", points("create"))
def test_after_the_death_of_a_worker_it_has_its_memory(real, capture, tmp_path, point):
    fork = real.spec("carrier")
    real.crash_at(point, tmp_path, "create", fork)
    assert not real.driver.create(fork).cold
    check_fork(real, fork)
    assert not (capture / "ram").exists()


@pytest.mark.parametrize("point", before("create", "running"))
def test_what_a_dead_worker_half_made_may_be_removed(real, capture, tmp_path, point):
    fork = real.spec("carrier")
    real.crash_at(point, tmp_path, "create", fork)
    real.driver.reclaim()
    assert real.driver.inspect(fork.sandbox_id) is None
    assert not real.driver.create(fork).cold
    check_fork(real, fork)


@pytest.mark.parametrize("point", before("create", "running"))
def test_after_a_create_that_failed_it_has_its_memory(real, capture, tmp_path, monkeypatch, point):
    (tmp_path / "fault").write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    fork = real.spec("carrier")
    with pytest.raises(DriverError):
        real.driver.create(fork)
    assert real.driver.inspect(fork.sandbox_id) is None and (capture / "ram").exists()
    assert not real.driver.create(fork).cold
    check_fork(real, fork)


def test_a_machine_that_ended_after_its_guest_ran_is_booted_from_its_disk(real, capture, tmp_path):
    fork = real.spec("carrier")
    real.crash_at("create.running", tmp_path, "create", fork)
    real.kill_machine(fork.sandbox_id)
    with pytest.raises(DriverError):
        real.driver.create(fork)
    told = real.driver.create(fork)
    assert "ran and ended" in told.cold_reason
    check_booted(real, fork, told)


def test_after_a_restart_of_the_host_it_is_booted_from_its_disk(real, capture):
    record = capture / "snapshot.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "lends_in": "an earlier run"}))
    fork = real.spec("carrier")
    told = real.driver.create(fork)
    assert "started again" in told.cold_reason
    check_booted(real, fork, told)


def test_the_memory_of_one_asleep_is_flushed_and_copied(real, source):
    real.shell(source, "echo captured > /dev/shm/memory")
    real.driver.hibernate(source.sandbox_id)
    real.driver.snapshot(source.sandbox_id, "carrier", transient=True)
    for fork in (real.create("carrier"), real.create("carrier")):
        check_fork(real, fork)
    assert real.driver.inspect(source.sandbox_id) is VmState.SAVED
