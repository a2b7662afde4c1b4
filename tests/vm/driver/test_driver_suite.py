"""What `Driver` promises of its operations, kept by every driver."""
import threading

import pytest

from guest.client.errors import AgentError, AgentUnauthorized
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, MemoryLost, Shape, VmBusy, VmNotFound, VmState
from tests.host.driver_checks import GROWN_BYTES, check_alive, check_grown, with_note
from tests.host.driver_lab import SHAPE


def test_create_gives_a_guest_that_answers_to_its_own_token_and_environment(lab):
    spec = lab.create()
    assert lab.driver.list_sandboxes() == {spec.sandbox_id: VmState.RUNNING}
    assert f"NUMBER={spec.env['NUMBER']}" in lab.agent(spec).exec(
        ["env"]).stdout.decode().splitlines()
    stranger = lab.spec(agent_port=spec.agent_port)
    with pytest.raises(AgentUnauthorized):
        lab.agent(stranger).ping()


def test_create_of_a_running_sandbox_returns_it_as_it_is(lab):
    spec = with_note(lab)
    assert lab.driver.create(spec) == lab.driver.create(spec)
    check_alive(lab, spec, b"first")


def test_a_late_create_of_a_sandbox_that_sleeps_wakes_it_and_loses_nothing(lab):
    """As by a worker that stood still, while another created it and its owner put it to sleep."""
    spec = with_note(lab)
    lab.driver.hibernate(spec.sandbox_id)
    assert not lab.driver.create(spec).cold
    check_alive(lab, spec, b"first")


def test_creates_of_one_id_at_once_make_one_machine(lab):
    spec, outcomes = lab.spec(), []

    def attempt():
        try:
            outcomes.append(lab.driver.create(spec))
        except VmBusy as busy:
            outcomes.append(busy)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = {outcome for outcome in outcomes if not isinstance(outcome, VmBusy)}
    assert len(outcomes) == 4 and len(made) == 1
    assert lab.agent(spec).ping().adopted == spec.sandbox_id


def test_create_from_an_unknown_snapshot_leaves_nothing(lab):
    spec = lab.spec("nosuchsnapshot")
    with pytest.raises(VmNotFound):
        lab.driver.create(spec)
    assert lab.driver.inspect(spec.sandbox_id) is None


def test_hibernate_keeps_everything_and_wake_brings_it_back_under_the_same_id(lab):
    spec = with_note(lab)
    lab.driver.hibernate(spec.sandbox_id)
    lab.driver.hibernate(spec.sandbox_id)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.SAVED
    with pytest.raises(AgentError):
        lab.agent(spec).ping(timeout_s=1)
    running = lab.driver.wake(spec)
    assert (running.sandbox_id, running.cold) == (spec.sandbox_id, False)
    assert lab.driver.wake(spec) == running
    check_alive(lab, spec, b"first")


def test_wake_with_another_token_and_port_makes_the_old_ones_invalid(lab):
    spec, other = with_note(lab), lab.spec()
    lab.driver.hibernate(spec.sandbox_id)
    moved = lab.spec(sandbox_id=spec.sandbox_id, agent_token=other.agent_token)
    lab.driver.wake(moved)
    check_alive(lab, moved, b"first")
    with pytest.raises(AgentError):
        lab.agent(spec).ping(timeout_s=1)


@pytest.mark.parametrize("asleep", [False, True], ids=["running", "saved"])
def test_a_snapshot_leaves_its_source_as_it_was_and_can_be_cloned_again_and_again(lab, asleep):
    spec = with_note(lab)
    if asleep:
        lab.driver.hibernate(spec.sandbox_id)
    facts = lab.driver.snapshot(spec.sandbox_id, "snap")
    assert lab.driver.snapshot(spec.sandbox_id, "snap") == facts
    assert facts.size_bytes > 0
    assert lab.driver.inspect(spec.sandbox_id) is (VmState.SAVED if asleep else VmState.RUNNING)
    if asleep:
        lab.driver.wake(spec)
    lab.agent(spec).write_file("/home/user/note", b"second")
    clones = [lab.create("snap") for _ in range(2)]
    for clone in clones:
        check_alive(lab, clone, b"first")
    check_alive(lab, spec, b"second")
    names = {lab.agent(each).read_file("/etc/machine-id", 100) for each in (spec, *clones)}
    assert len(names) == 3


def test_a_snapshot_outlives_its_source_and_a_clone_its_snapshot(lab):
    spec = with_note(lab)
    lab.driver.snapshot(spec.sandbox_id, "snap")
    lab.driver.destroy(spec.sandbox_id)
    clone = lab.create("snap")
    assert lab.driver.list_snapshots() == {"snap"}
    lab.driver.delete_snapshot("snap")
    lab.driver.delete_snapshot("snap")
    assert lab.driver.list_snapshots() == set()
    lab.driver.hibernate(clone.sandbox_id)
    lab.driver.wake(clone)
    check_alive(lab, clone, b"first")


def test_a_snapshot_in_another_shape_boots_cold_with_its_files_and_an_identity_of_its_own(lab):
    spec, larger = with_note(lab), Shape(2, 1536)
    lab.agent(spec).sync()
    lab.driver.snapshot(spec.sandbox_id, "snap")
    clone = lab.spec("snap", shape=larger)
    running = lab.driver.create(clone)
    assert running.cold and "shape" in running.cold_reason
    check_alive(lab, clone, b"first")
    assert lab.agent(clone).read_file("/etc/machine-id", 100) != lab.agent(spec).read_file(
        "/etc/machine-id", 100)
    if lab.is_real:
        assert lab.shell(clone, "nproc").strip() == "2"
        assert 1300 < int(lab.shell(clone, "free -m | awk '/^Mem/ {print $2}'")) <= 1536
    lab.driver.hibernate(clone.sandbox_id)
    assert not lab.driver.wake(clone).cold, "from now on it is a machine like any other"
    check_alive(lab, clone, b"first")


def test_destroy_leaves_nothing_whatever_it_finds(lab):
    running, asleep = lab.create(), lab.create()
    lab.driver.hibernate(asleep.sandbox_id)
    for sandbox_id in (running.sandbox_id, asleep.sandbox_id, running.sandbox_id, "neverwas"):
        lab.driver.destroy(sandbox_id)
        assert lab.driver.inspect(sandbox_id) is None
    assert lab.driver.list_sandboxes() == {}


def test_operations_on_a_sandbox_that_is_not_here_say_so(lab):
    with pytest.raises(VmNotFound):
        lab.driver.hibernate("neverwas")
    with pytest.raises(VmNotFound):
        lab.driver.wake(lab.spec(sandbox_id="neverwas"))
    with pytest.raises(VmNotFound):
        lab.driver.snapshot("neverwas", "snap")
    assert lab.driver.list_sandboxes() == {} and lab.driver.list_snapshots() == set()


def test_a_second_worker_is_told_that_the_sandbox_is_busy(lab):
    spec = with_note(lab)
    with locks.locked(lab.settings.node_dir / "sandboxes" / spec.sandbox_id / "op.lock"):
        for call in (lambda: lab.driver.hibernate(spec.sandbox_id),
                     lambda: lab.driver.destroy(spec.sandbox_id)):
            with pytest.raises(VmBusy):
                call()
    check_alive(lab, spec, b"first")


def test_a_machine_that_died_is_found_by_looking_and_boots_from_its_disk(lab):
    spec = lab.create()
    lab.kill_machine(spec.sandbox_id)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.DISK_ONLY
    with pytest.raises(DriverError):
        lab.driver.hibernate(spec.sandbox_id)
    running = lab.driver.wake(spec)
    assert running.cold and running.cold_reason
    assert lab.driver.inspect(spec.sandbox_id) is VmState.RUNNING
    assert lab.agent(spec).ping().adopted == spec.sandbox_id


def test_a_machine_that_died_is_captured_from_its_disk_and_its_copies_boot_cold(lab):
    spec = with_note(lab)
    lab.agent(spec).sync()
    lab.driver.hibernate(spec.sandbox_id)
    lab.driver.wake(spec)
    lab.kill_machine(spec.sandbox_id)
    with pytest.raises(MemoryLost):
        lab.driver.hibernate(spec.sandbox_id)
    facts = lab.driver.snapshot(spec.sandbox_id, "snapdead")
    assert not facts.has_memory and facts == lab.driver.snapshot(spec.sandbox_id, "snapdead")
    assert lab.driver.inspect(spec.sandbox_id) is VmState.DISK_ONLY
    clone = lab.spec("snapdead")
    running = lab.driver.create(clone)
    assert running.cold and "no memory here" in running.cold_reason
    check_alive(lab, clone, b"first")
    lab.driver.hibernate(clone.sandbox_id)
    assert not lab.driver.wake(clone).cold, "from now on it is a machine like any other"
    assert lab.driver.snapshot(clone.sandbox_id, "snapalive").has_memory


def test_a_running_machine_is_untouched_by_reclaim(lab):
    spec = with_note(lab)
    lab.driver.reclaim()
    check_alive(lab, spec, b"first")


def test_the_host_tuple_is_stable_and_templates_are_known_by_shape(lab):
    assert lab.driver.host_tuple() == lab.driver.host_tuple()
    assert lab.driver.has_warm_image(SHAPE)
    assert not lab.driver.has_warm_image(Shape(1, 1025))


def test_a_disk_grows_under_its_guest_and_stays_so_in_whatever_comes_of_it(lab):
    spec = with_note(lab)
    small = lab.agent(spec).disk().total_bytes
    lab.driver.grow_disk(spec.sandbox_id, GROWN_BYTES)
    lab.driver.grow_disk(spec.sandbox_id, GROWN_BYTES)
    lab.driver.grow_disk(spec.sandbox_id, 1024**3)
    assert lab.agent(spec).disk().total_bytes == small, "the file system is the guest's own"
    check_grown(lab, spec, b"first")
    lab.driver.hibernate(spec.sandbox_id)
    with pytest.raises(DriverError):
        lab.driver.grow_disk(spec.sandbox_id, GROWN_BYTES)
    lab.driver.snapshot(spec.sandbox_id, "asleep")
    lab.driver.wake(spec)
    lab.driver.snapshot(spec.sandbox_id, "awake")
    for each in (spec, lab.create("asleep"), lab.create("awake")):
        assert lab.agent(each).disk().total_bytes > 0.95 * GROWN_BYTES
        check_grown(lab, each, b"first")


def test_a_snapshot_between_a_larger_disk_and_a_larger_file_system_loses_neither(lab):
    spec = with_note(lab)
    lab.driver.grow_disk(spec.sandbox_id, GROWN_BYTES)
    lab.driver.snapshot(spec.sandbox_id, "between")
    clone = lab.create("between")
    for each in (spec, clone):
        lab.driver.grow_disk(each.sandbox_id, GROWN_BYTES)
        check_grown(lab, each, b"first")


def test_a_disk_of_nobody_does_not_grow(lab):
    with pytest.raises(VmNotFound):
        lab.driver.grow_disk("neverwas", GROWN_BYTES)
    assert lab.driver.list_sandboxes() == {}


def test_disk_use_names_what_is_here_and_nothing_else(lab):
    spec = with_note(lab)
    lab.driver.snapshot(spec.sandbox_id, "snap")
    lab.driver.collect_garbage()
    used = lab.driver.disk_use()
    assert set(used.sandboxes) == {spec.sandbox_id} and set(used.snapshots) == {"snap"}
    assert min(*used.sandboxes.values(), *used.snapshots.values(), *used.node.values()) >= 0
    assert used.sandboxes[spec.sandbox_id] > 0
    lab.driver.delete_snapshot("snap")
    lab.driver.destroy(spec.sandbox_id)
    left = lab.driver.disk_use()
    assert (left.sandboxes, left.snapshots) == ({}, {})
    check_alive(lab, with_note(lab), b"first")
