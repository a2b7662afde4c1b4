"""What `Driver` promises after the death of a worker or a failure at any step of any operation."""
import os
import signal
from dataclasses import replace

import pytest

from nodeworker.hypervisor.driver import DriverError, VmState
from nodeworker.hypervisor.qemu.process import start_in_slot
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from tests.host.driver_checks import (
    GROWN_BYTES,
    before,
    check_alive,
    check_disk_limits,
    check_grown,
    failing_once,
    points,
    with_note,
)


@pytest.fixture
def fault(tmp_path, monkeypatch):
    """Makes this process fail at a point."""
    path = tmp_path / "fault"
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    return lambda point: path.write_text(f"{point} raise")


@pytest.mark.parametrize("point", points("create"))
def test_create_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = lab.spec()
    lab.crash_at(point, tmp_path, "create", spec)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.PARTIAL
    lab.driver.create(spec)
    assert lab.driver.list_sandboxes() == {spec.sandbox_id: VmState.RUNNING}
    assert lab.agent(spec).ping().adopted == spec.sandbox_id


@pytest.mark.parametrize("point", points("create"))
def test_reclaim_removes_what_a_dead_worker_half_made(lab, tmp_path, point):
    lab.crash_at(point, tmp_path, "create", lab.spec())
    lab.driver.reclaim()
    assert lab.driver.list_sandboxes() == {}


@pytest.mark.parametrize("point", points("hibernate"))
def test_hibernate_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "hibernate", spec.sandbox_id)
    assert lab.driver.inspect(spec.sandbox_id) in (VmState.PARTIAL, VmState.SAVED)
    lab.driver.hibernate(spec.sandbox_id)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not lab.driver.wake(spec).cold
    check_alive(lab, spec, b"first")


@pytest.mark.parametrize("point", points("hibernate"))
def test_wake_of_what_a_dead_hibernate_left(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "hibernate", spec.sandbox_id)
    assert not lab.driver.wake(spec).cold
    check_alive(lab, spec, b"first")


@pytest.mark.parametrize("point", points("wake"))
def test_wake_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.driver.hibernate(spec.sandbox_id)
    lab.crash_at(point, tmp_path, "wake", spec)
    assert lab.driver.inspect(spec.sandbox_id) in (VmState.PARTIAL, VmState.SAVED)
    assert not lab.driver.wake(spec).cold
    check_alive(lab, spec, b"first")


def test_a_guest_let_go_by_another_than_who_started_it_has_its_limits(real, tmp_path):
    spec = with_note(real)
    real.driver.hibernate(spec.sandbox_id)
    real.crash_at("wake.marked", tmp_path, "wake", spec)
    assert not real.driver.wake(spec).cold
    check_disk_limits(real, spec)


@pytest.mark.parametrize("point", points("snapshot"))
def test_snapshot_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "snapshot", spec.sandbox_id, "snap")
    assert ("snap" in lab.driver.list_snapshots()) is (point == points("snapshot")[-1])
    lab.driver.snapshot(spec.sandbox_id, "snap")
    check_alive(lab, spec, b"first")
    check_alive(lab, lab.create("snap"), b"first")


@pytest.mark.parametrize("point", [f"snapshot.{step}" for step in (
    "layer_recorded", "stopped", "state_written", "resumed", "flushed")])
def test_the_same_where_nothing_was_written_since_the_snapshot_before(lab, tmp_path, point):
    spec = with_note(lab)
    lab.driver.snapshot(spec.sandbox_id, "before")
    lab.crash_at(point, tmp_path, "snapshot", spec.sandbox_id, "snap")
    lab.driver.snapshot(spec.sandbox_id, "snap")
    for each in (spec, lab.create("snap"), lab.create("before")):
        check_alive(lab, each, b"first")


@pytest.mark.parametrize("point", points("grow"))
def test_growing_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "grow_disk", spec.sandbox_id, GROWN_BYTES)
    check_alive(lab, spec, b"first")
    lab.driver.snapshot(spec.sandbox_id, "snap")
    lab.driver.hibernate(spec.sandbox_id)
    assert not lab.driver.wake(spec).cold
    for each in (spec, lab.create("snap")):
        lab.driver.grow_disk(each.sandbox_id, GROWN_BYTES)
        check_grown(lab, each, b"first")


@pytest.mark.parametrize("point", points("destroy"))
def test_destroy_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "destroy", spec.sandbox_id)
    lab.driver.destroy(spec.sandbox_id)
    assert lab.driver.list_sandboxes() == {}


@pytest.mark.parametrize("point", points("delete")[:2])
def test_a_deletion_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    for name in ("doomed", "kept"):
        lab.driver.snapshot(spec.sandbox_id, name)
    lab.crash_at(point, tmp_path, "delete_snapshot", "doomed")
    lab.driver.delete_snapshot("doomed")
    assert lab.driver.list_snapshots() == {"kept"}
    check_alive(lab, spec, b"first")
    check_alive(lab, lab.create("kept"), b"first")


@pytest.mark.parametrize("point", points("create"))
def test_a_create_that_fails_leaves_nothing(lab, fault, point):
    spec = lab.spec()
    fault(point)
    with pytest.raises(DriverError):
        lab.driver.create(spec)
    assert lab.driver.inspect(spec.sandbox_id) is None
    lab.driver.create(spec)


@pytest.mark.parametrize("point", before("hibernate", "saved"))
def test_a_hibernate_that_fails_lets_the_guest_run_on(lab, fault, point):
    spec = with_note(lab)
    fault(point)
    with pytest.raises(DriverError):
        lab.driver.hibernate(spec.sandbox_id)
    check_alive(lab, spec, b"first")


@pytest.mark.parametrize("point", before("wake", "marked"))
def test_a_wake_that_fails_leaves_the_sandbox_saved(lab, fault, point):
    spec = with_note(lab)
    lab.driver.hibernate(spec.sandbox_id)
    fault(point)
    with pytest.raises(DriverError):
        lab.driver.wake(spec)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not lab.driver.wake(spec).cold
    check_alive(lab, spec, b"first")


@pytest.mark.parametrize("point", before("snapshot", "complete"))
def test_a_snapshot_that_fails_leaves_no_trace(lab, fault, point):
    spec = with_note(lab)
    fault(point)
    with pytest.raises(DriverError):
        lab.driver.snapshot(spec.sandbox_id, "snap")
    assert lab.driver.list_snapshots() == set()
    check_alive(lab, spec, b"first")


@pytest.mark.parametrize("captured_first", [False, True], ids=["woken", "captured and woken"])
def test_a_fork_whose_layer_a_power_failure_took_boots_from_what_it_was_made_of(
        real, captured_first):
    """A create does not flush it: it could never be woken then."""
    source = with_note(real)
    real.shell(source, "sync")
    real.driver.snapshot(source.sandbox_id, "snap")
    fork = real.create("snap")
    real.kill_machine(fork.sandbox_id)
    host = real.driver.host
    layer = host.layers.path(host.rundir(fork.sandbox_id).chain()[-1])
    size = layer.stat().st_size
    os.truncate(layer, 0)
    os.truncate(layer, 2 * size)
    if captured_first:
        real.driver.snapshot(fork.sandbox_id, "later")
        check_alive(real, real.create("later"), b"first")
    assert real.driver.wake(fork).cold
    check_alive(real, fork, b"first")
    real.driver.hibernate(fork.sandbox_id)
    assert not real.driver.wake(fork).cold


def only_in_memory(lab):
    spec = with_note(lab)
    lab.shell(spec, "echo told > /dev/shm/memory")
    lab.driver.hibernate(spec.sandbox_id)
    return spec


@pytest.mark.parametrize(("owner", "name"), [(Monitor, "limit_io"), (start_in_slot, "confine")])
def test_a_wake_whose_host_fails_before_the_guest_moves_keeps_its_memory(
        real, monkeypatch, owner, name):
    spec = only_in_memory(real)
    failing_once(monkeypatch, owner, name)
    with pytest.raises(DriverError, match="the host fails"):
        real.driver.wake(spec)
    assert real.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not real.driver.wake(spec).cold
    assert real.shell(spec, "cat /dev/shm/memory") == "told\n"


@pytest.fixture
def killed_loading(real, monkeypatch):
    """Has QEMU killed, as for want of memory, the next time that it is to load a state of this
    sandbox."""
    def arrange(spec):
        loads = Monitor.load

        def load(*arguments, **options):
            monkeypatch.setattr(Monitor, "load", loads)
            os.kill(real.driver.host.rundir(spec.sandbox_id).find_record().pid, signal.SIGKILL)
            return loads(*arguments, **options)

        monkeypatch.setattr(Monitor, "load", load)
        return spec
    return arrange


def test_a_wake_whose_qemu_is_killed_while_it_loads_keeps_its_memory(real, killed_loading):
    spec = killed_loading(only_in_memory(real))
    with pytest.raises(DriverError):
        real.driver.wake(spec)
    assert real.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not real.driver.wake(spec).cold
    assert real.shell(spec, "cat /dev/shm/memory") == "told\n"


def test_a_fork_whose_qemu_is_killed_while_it_loads_has_its_memory_at_the_next_try(
        real, killed_loading):
    source = only_in_memory(real)
    real.driver.snapshot(source.sandbox_id, "snap")
    fork = killed_loading(real.spec("snap"))
    with pytest.raises(DriverError):
        real.driver.create(fork)
    assert not real.driver.create(fork).cold
    assert real.shell(fork, "cat /dev/shm/memory") == "told\n"


def test_the_last_try_of_a_wake_boots_from_disk_rather_than_fail_again(real, killed_loading):
    spec = killed_loading(only_in_memory(real))
    assert real.driver.wake(replace(spec, is_last_try=True)).cold
    assert real.agent(spec).ping().adopted == spec.sandbox_id


def test_a_wake_whose_ports_cannot_be_forwarded_in_that_moment_keeps_its_memory(real, monkeypatch):
    spec = only_in_memory(real)
    failing_once(monkeypatch, real.driver.host.network, "forward")
    assert not real.driver.wake(spec).cold  # repeated while it is said to be still starting
    check_alive(real, spec, b"first")
    assert real.shell(spec, "cat /dev/shm/memory") == "told\n"


def test_a_create_whose_ports_cannot_be_forwarded_in_that_moment_is_looked_at_again(
        real, monkeypatch):
    failing_once(monkeypatch, real.driver.host.network, "forward")
    check_alive(real, with_note(real), b"first")
