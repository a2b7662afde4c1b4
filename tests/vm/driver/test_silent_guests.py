"""A guest that does not answer keeps no caller of the driver waiting, and neither it nor another
call keeps a sandbox from being ended."""
import os
import signal
import subprocess
import threading
import time

import pytest

from guest.client.errors import AgentError
from nodeworker.hypervisor.driver import Shape, StillStarting, VmBusy, VmState
from nodeworker.hypervisor.factory import make_driver
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.host.driver_checks import check_alive, with_note

# The agent stands still for a while, as one of a guest that is in trouble does.
STAND_STILL = ("setsid sh -c 'sleep 0.5; agent=$(pgrep -o -f \"[-]m agent$\"); kill -STOP $agent;"
               " sleep {seconds}; kill -CONT $agent' >/dev/null 2>&1 &")
# At each a process of the machine lives, or is about to.
AT_WORK = [("create", "create.recorded"), ("create", "create.spawned"), ("wake", "wake.begun"),
           ("wake", "wake.loaded"), ("hibernate", "hibernate.stopped"),
           ("snapshot", "snapshot.state_written")]


@pytest.fixture
def worker(real):
    """A driver as node workers have it: nobody repeats its calls."""
    return make_driver(real.settings)


def rundir(lab, spec):
    return RunDir(lab.settings.node_dir / "sandboxes" / spec.sandbox_id)


def machines(lab):
    """Pids of all machines of this node."""
    found = subprocess.run(["pgrep", "-f",
                            f"{lab.settings.net_prefix}/"], capture_output=True, text=True,
                           check=False)
    return set(found.stdout.split())


def silence(lab, spec, seconds):
    """Stop the agent for so long; returns once it has not answered twice in a row, as one that is
    only slow would."""
    lab.shell(spec, STAND_STILL.format(seconds=seconds))
    deadline, unanswered = time.monotonic() + 20, 0
    while time.monotonic() < deadline:
        try:
            lab.agent(spec).ping(timeout_s=1)
            unanswered = 0
        except AgentError:
            unanswered += 1
            if unanswered == 2:
                return
        time.sleep(0.1)
    pytest.fail("the agent of the guest did not stop answering")


def test_a_wake_leaves_a_silent_guest_and_keeps_its_memory(real, worker):
    spec = with_note(real)
    real.shell(spec, "echo only in memory >/dev/shm/told")
    silence(real, spec, 12)
    real.driver.hibernate(spec.sandbox_id)
    with pytest.raises(StillStarting):
        worker.wake(spec)
    assert worker.inspect(spec.sandbox_id) is VmState.PARTIAL
    assert not real.driver.wake(spec).cold
    check_alive(real, spec, b"first")
    assert real.shell(spec, "cat /dev/shm/told") == "only in memory\n"


def test_a_cold_boot_is_left_alone_and_begun_again_if_its_process_ends(real, worker):
    spec = real.spec(shape=Shape(1, 1280))
    with pytest.raises(StillStarting):
        worker.create(spec)
    first = rundir(real, spec).find_record()
    with pytest.raises(StillStarting):
        worker.create(spec)
    assert rundir(real, spec).find_record().pid == first.pid
    os.kill(first.pid, signal.SIGKILL)
    while rundir(real, spec).is_alive():
        time.sleep(0.01)
    with pytest.raises(StillStarting):
        worker.create(spec)
    again = rundir(real, spec).find_record()
    assert again.pid != first.pid and again.starting.tries == 1
    worker.terminate(spec.sandbox_id)
    assert worker.list_sandboxes() == {} and not machines(real)


def test_a_machine_is_ended_while_another_call_holds_its_lock(real, worker):
    spec = with_note(real)
    assert machines(real)
    with rundir(real, spec).operation():
        with pytest.raises(VmBusy):
            worker.destroy(spec.sandbox_id)
        check_alive(real, spec, b"first")
        worker.terminate(spec.sandbox_id)
        assert not machines(real) and worker.list_sandboxes() == {}
        assert spec.sandbox_id not in worker.host.network.slots.owners()
    worker.terminate(spec.sandbox_id)


@pytest.mark.parametrize(("operation", "point"), AT_WORK)
def test_a_machine_is_ended_in_the_middle_of_an_operation(real, worker, tmp_path, operation, point):
    spec = real.spec() if operation == "create" else with_note(real)
    if operation == "wake":
        real.driver.hibernate(spec.sandbox_id)
    arguments = {"create": (spec, ), "wake": (spec, ), "hibernate": (spec.sandbox_id, ),
                 "snapshot": (spec.sandbox_id, "snap")}[operation]
    path = tmp_path / "fault"
    path.write_text(f"{point} sleep:10")
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(real.in_child(operation, *arguments, fault_file=path)))
    thread.start()
    while path.exists():
        assert thread.is_alive(), f"{operation} never came to {point}"
        time.sleep(0.01)
    worker.terminate(spec.sandbox_id)
    assert not ended, "terminate has waited for the other call"
    thread.join()
    assert ended[0] != 0, "the other call says that it succeeded"
    assert not machines(real) and worker.list_sandboxes() == {}
    assert worker.list_snapshots() == set()
    assert spec.sandbox_id not in worker.host.network.slots.owners()
    assert spec.sandbox_id not in worker.host.cgroups.names()


def test_what_a_dead_removal_has_put_aside_is_ended_by_the_next_start(real, worker, tmp_path):
    spec = with_note(real)
    real.crash_at("destroy.put_aside", tmp_path, "terminate", spec.sandbox_id)
    worker.reclaim()
    assert not machines(real) and worker.list_sandboxes() == {}
    assert not list((real.settings.node_dir / "trash").glob("*.ending"))
