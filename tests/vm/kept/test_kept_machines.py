"""Machines whose process is kept while their sandbox sleeps: a wake goes on with it, and whatever
becomes of it, nothing is lost."""
import os
import signal
import socket
import threading
import time

import pytest

from guest.client.errors import AgentError
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import DriverError, VmState
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.host.driver_checks import (
    before,
    check_alive,
    check_clock,
    fill_slots,
    listen_longer,
    note_rehearsals,
    points,
    with_note,
)
from tests.host.driver_lab import Lab
from tests.host.guest_places import addresses_asleep

LEAVE = ("echo kept > /dev/shm/memory; setsid sleep 100000 > /dev/null 2>&1 < /dev/null &"
         " echo $! > /dev/shm/pid; sync")
LOOK = "cat /dev/shm/memory; kill -0 $(cat /dev/shm/pid) && echo lives"


@pytest.fixture
def keeping(real):
    """The node of `real` with two processes kept at most."""
    return Lab({**real.environ, "SVC_KEPT_MACHINES": "2"}, real.numbers)


def record_of(lab, spec):
    return RunDir(lab.settings.node_dir / "sandboxes" / spec.sandbox_id).find_record()


def is_kept(lab, spec):
    """As the host shows it: its process lives although it sleeps."""
    assert lab.driver.inspect(spec.sandbox_id) is VmState.SAVED
    return lab.driver.host.rundir(spec.sandbox_id).is_alive()


def is_reset(lab, spec):
    """Whether connections of other hosts to it are."""
    slot = lab.driver.host.network.slots.slot(record_of(lab, spec).slot)
    return slot.address in addresses_asleep(lab.settings.net_prefix)


def asleep(lab):
    """A sleeping sandbox with a note, the process of which is kept."""
    spec = with_note(lab)
    lab.shell(spec, LEAVE)
    lab.driver.hibernate(spec.sandbox_id)
    assert is_kept(lab, spec) and is_reset(lab, spec)
    return spec


def check_woken(lab, spec):
    """Its memory, its processes and its files are what they were, and its clock is right."""
    check_alive(lab, spec, b"first")
    assert lab.shell(spec, LOOK).split() == ["kept", "lives"]
    check_clock(lab.shell, spec)


def test_a_wake_goes_on_with_the_process_again_and_again(keeping):
    spec = asleep(keeping)
    process = record_of(keeping, spec).pid
    time.sleep(5)  # longer than `check_clock` allows: a clock that stood still would be seen
    for _ in range(3):
        assert not keeping.driver.wake(spec).cold
        check_woken(keeping, spec)
        assert record_of(keeping, spec).pid == process and not is_reset(keeping, spec)
        keeping.driver.hibernate(spec.sandbox_id)
        keeping.driver.hibernate(spec.sandbox_id)
        assert is_kept(keeping, spec)


def test_its_guest_rehearses_nothing_since_the_emulator_knows_its_code(keeping, monkeypatch):
    told = note_rehearsals(monkeypatch)
    spec = asleep(keeping)
    keeping.driver.wake(spec)
    check_woken(keeping, spec)
    keeping.driver.hibernate(spec.sandbox_id)
    keeping.driver.wake(spec)
    assert told == [True, False, False]


def test_it_answers_before_its_ports_lead_to_it_and_is_awake_once_they_do(keeping, monkeypatch):
    listen_longer(monkeypatch.setattr)
    spec = asleep(keeping)
    forward, adopt = keeping.driver.host.network.forward, adoption.adopt
    answered, in_time = threading.Event(), []

    def adopt_and_tell(*arguments, **named):
        adopt(*arguments, **named)
        answered.set()

    def forward_late(*arguments, **named):
        in_time.append(answered.wait(20))
        time.sleep(0.5)
        forward(*arguments, **named)

    monkeypatch.setattr(adoption, "adopt", adopt_and_tell)
    monkeypatch.setattr(keeping.driver.host.network, "forward", forward_late)
    assert not keeping.driver.wake(spec).cold
    assert in_time == [True]
    check_woken(keeping, spec)


def test_nobody_reaches_it_nor_is_charged_for_it_while_it_sleeps(keeping):
    spec = with_note(keeping)
    first = keeping.driver.read_usage(spec.sandbox_id)
    connection = socket.create_connection((keeping.settings.node_address, spec.agent_port))
    keeping.driver.hibernate(spec.sandbox_id)
    assert is_kept(keeping, spec) and keeping.driver.read_usage(spec.sandbox_id) is None
    with pytest.raises(AgentError):
        keeping.agent(spec).ping()
    connection.close()
    time.sleep(2)
    began = time.monotonic()
    keeping.driver.wake(spec)
    second = keeping.driver.read_usage(spec.sandbox_id)
    passed_ms = (time.monotonic() - began) * 1000
    assert second.run != first.run
    assert second.age_ms <= passed_ms and second.cpu_ms <= passed_ms


def test_with_another_token_and_other_ports_the_old_ones_lead_nowhere(keeping):
    spec = asleep(keeping)
    other = keeping.spec(sandbox_id=spec.sandbox_id)
    assert not keeping.driver.wake(other).cold
    check_woken(keeping, other)
    with pytest.raises(AgentError):
        keeping.agent(spec).ping()


@pytest.mark.parametrize("point", points("hibernate"))
def test_the_death_of_a_worker_that_puts_it_to_sleep(keeping, tmp_path, point):
    spec = with_note(keeping)
    keeping.shell(spec, LEAVE)
    keeping.crash_at(point, tmp_path, "hibernate", spec.sandbox_id)
    keeping.driver.hibernate(spec.sandbox_id)
    assert keeping.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not keeping.driver.wake(spec).cold
    check_woken(keeping, spec)


@pytest.mark.parametrize("point", points("wake"))
def test_the_death_of_a_worker_that_wakes_it(keeping, tmp_path, point):
    spec = asleep(keeping)
    keeping.crash_at(point, tmp_path, "wake", spec)
    assert keeping.driver.inspect(spec.sandbox_id) in (VmState.PARTIAL, VmState.SAVED)
    assert not keeping.driver.wake(spec).cold
    check_woken(keeping, spec)


@pytest.mark.parametrize("point", before("wake", "running"))
def test_a_failure_before_it_moves_ends_the_process_and_no_more(
        keeping, tmp_path, monkeypatch, point):
    spec = asleep(keeping)
    process = record_of(keeping, spec).pid
    path = tmp_path / "fault"
    path.write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    if point == "wake.begun":
        with pytest.raises(DriverError):
            keeping.driver.wake(spec)
        assert not is_kept(keeping, spec)
    assert not keeping.driver.wake(spec).cold
    assert not path.exists() and record_of(keeping, spec).pid != process
    check_woken(keeping, spec)


def test_a_process_that_is_lost_costs_only_time(keeping):
    spec = asleep(keeping)
    os.kill(record_of(keeping, spec).pid, signal.SIGKILL)
    assert not keeping.driver.wake(spec).cold
    check_woken(keeping, spec)


def test_after_a_power_failure_it_is_what_it_was(keeping):
    """What was not flushed is gone with the process: the file of what this boot believes."""
    spec = asleep(keeping)
    rundir = keeping.driver.host.rundir(spec.sandbox_id)
    os.kill(record_of(keeping, spec).pid, signal.SIGKILL)
    (rundir.path / "vm.now").unlink()
    while rundir.is_alive():
        time.sleep(0.01)
    assert keeping.driver.inspect(spec.sandbox_id) is VmState.SAVED
    assert not keeping.driver.wake(spec).cold
    check_woken(keeping, spec)


def test_a_capture_of_it_is_whole_and_so_is_it(keeping):
    spec = asleep(keeping)
    keeping.driver.snapshot(spec.sandbox_id, "snap")
    assert not is_kept(keeping, spec), "its disk has a layer that the process does not know"
    check_woken(keeping, keeping.create("snap"))
    assert not keeping.driver.wake(spec).cold
    check_woken(keeping, spec)


def test_nothing_is_left_of_one_that_is_destroyed(keeping):
    spec = asleep(keeping)
    process = record_of(keeping, spec).pid
    keeping.driver.destroy(spec.sandbox_id)
    assert keeping.driver.inspect(spec.sandbox_id) is None
    assert not os.path.exists(f"/proc/{process}/exe")
    assert spec.sandbox_id not in keeping.driver.host.network.slots.owners()
    assert spec.sandbox_id not in keeping.driver.host.cgroups.names()


def test_a_worker_that_starts_leaves_it_alone(keeping):
    spec = asleep(keeping)
    keeping.driver.reclaim()
    assert is_kept(keeping, spec) and is_reset(keeping, spec)
    process = record_of(keeping, spec).pid
    assert not keeping.driver.wake(spec).cold
    assert record_of(keeping, spec).pid == process
    check_woken(keeping, spec)


def test_the_eldest_are_given_up_when_there_are_too_many_or_they_are_old(keeping):
    specs = [asleep(keeping) for _ in range(3)]
    assert keeping.driver.tend_suspended().ended == 1
    assert [is_kept(keeping, spec) for spec in specs] == [False, True, True]
    assert specs[0].sandbox_id not in keeping.driver.host.network.slots.owners()
    assert keeping.driver.tend_suspended().ended == 0
    os.kill(record_of(keeping, specs[2]).pid, signal.SIGKILL)
    impatient = Lab({**keeping.environ, "SVC_KEPT_S": "0"})
    assert impatient.driver.tend_suspended().ended == 2
    assert not {spec.sandbox_id for spec in specs} & set(
        keeping.driver.host.network.slots.owners())
    for spec in specs:
        assert not keeping.driver.wake(spec).cold
        check_woken(keeping, spec)


def test_none_is_kept_while_memory_is_short(keeping, monkeypatch):
    spec = asleep(keeping)
    monkeypatch.setattr(host_memory, "_LEFT_BESIDE_READY", 1.0)
    assert keeping.driver.tend_suspended().ended == 1
    assert not is_kept(keeping, spec)
    keeping.driver.wake(spec)
    keeping.driver.hibernate(spec.sandbox_id)
    assert not is_kept(keeping, spec)


def test_its_slot_is_given_to_who_needs_one(narrow_lab):
    lab, spec = narrow_lab, asleep(narrow_lab)
    fill_slots(lab, leave=1)
    check_alive(lab, with_note(lab), b"first")
    assert not is_kept(lab, spec)
    with pytest.raises(DriverError, match="NoSlot"):
        lab.driver.wake(spec)
    assert lab.driver.inspect(spec.sandbox_id) is VmState.SAVED
