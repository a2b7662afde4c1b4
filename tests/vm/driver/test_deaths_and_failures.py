"""What `Driver` promises after the death of a worker or a failure at any step of any operation."""

import pytest

from nodeworker.hypervisor.driver import DriverError, VmState
from tests.host.driver_checks import (
    GROWN_BYTES,
    before,
    check_alive,
    check_grown,
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


@pytest.mark.parametrize("point", points("snapshot"))
def test_snapshot_after_the_death_of_a_worker(lab, tmp_path, point):
    spec = with_note(lab)
    lab.crash_at(point, tmp_path, "snapshot", spec.sandbox_id, "snap")
    assert ("snap" in lab.driver.list_snapshots()) is (point == points("snapshot")[-1])
    lab.driver.snapshot(spec.sandbox_id, "snap")
    check_alive(lab, spec, b"first")
    check_alive(lab, lab.create("snap"), b"first")


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
