"""Machines that have run once and stand stopped until a create takes them: they become the sandbox
and nobody else's, and leave nothing behind, whoever dies."""
import os
import signal
import threading
import time

import pytest

from guest.agent.protocol import AGENT_PORT
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError
from nodeworker.disks.durable import read_json
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import NoDiskSpace, VmState
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.operations import create
from nodeworker.hypervisor.qemu.suspended import making_spares, warm_spares
from tests.host.driver_checks import before, fill_slots, pid_of, points
from tests.host.driver_lab import SHAPE, Lab
from tests.vm.spares.checks import (
    IDENTITY,
    MAKING,
    TAKING,
    check_nothing_left,
    check_runs,
    crash_making,
    image,
    make,
)

# File -> content while a spare is made, and of a sandbox of one vCPU.
SHARES = {"cpu.shares": (2, 1024), "cpu.weight": (1, 100)}


def cpu_share(lab, name):
    """The share of the CPU of a machine's cgroup, as either version of the kernel writes it."""
    [file] = [file for parent in lab.driver.host.cgroups._parents()
              for file in (parent / name).glob("cpu.*") if file.name in SHARES]
    return file.name, int(file.read_text())


def test_a_create_goes_on_with_its_process_as_a_computer_of_its_own(sparing):
    spares = [make(sparing), make(sparing)]
    made = {spare.find_record().pid for spare in spares}
    file, share = cpu_share(sparing, spares[0].sandbox_id)
    assert share == SHARES[file][0], "it would take the CPU from those who wait for a sandbox"
    [token, *_] = read_json(spares[0].path / "tokens")["tokens"]
    taken = [sparing.create(), sparing.create()]
    assert {pid_of(sparing, spec) for spec in taken} == made
    identities = [sparing.shell(spec, IDENTITY).splitlines() for spec in (*taken, sparing.create())]
    for column in zip(*identities, strict=True):
        assert len(set(column)) == len(identities), column
    for spec in taken:
        check_runs(sparing, spec)
        assert cpu_share(sparing, spec.sandbox_id)[1] == SHARES[file][1]
        slot = sparing.driver.host.network.slots.owners()[spec.sandbox_id]
        address = sparing.driver.host.network.slots.slot(slot).address
        with pytest.raises(AgentError):
            AgentClient(address, AGENT_PORT, token).exec(["/bin/true"])


def test_nothing_in_the_guest_tells_of_the_spare(sparing):
    spare = make(sparing)
    spec = sparing.create()
    found = sparing.agent(spec).exec(
        shell=f"hostname; grep -rlsF {spare.sandbox_id} /etc /var /root /home /run /tmp /dev/shm")
    assert found.stdout.decode().split() == [spec.sandbox_id]
    told = sparing.shell(spec, "cat /proc/*/environ | tr '\\0' '\\n'; dmesg")
    assert spare.sandbox_id not in told


def test_it_is_charged_from_the_moment_it_is_taken(sparing):
    make(sparing)
    time.sleep(3)
    began = time.monotonic()
    spec = sparing.create()
    used = sparing.driver.read_usage(spec.sandbox_id)
    passed_ms = (time.monotonic() - began) * 1000
    assert used.age_ms <= passed_ms and used.cpu_ms <= passed_ms


def test_it_sleeps_wakes_forks_and_goes_like_any_other(sparing):
    make(sparing)
    spec = sparing.create()
    sparing.shell(spec, "echo here > /dev/shm/memory; echo there > /root/disk; sync")
    sparing.driver.hibernate(spec.sandbox_id)
    assert not sparing.driver.wake(spec).cold
    sparing.driver.snapshot(spec.sandbox_id, "snap")
    for each in (spec, sparing.create("snap")):
        assert sparing.shell(each, "cat /dev/shm/memory /root/disk") == "here\nthere\n"
    sparing.clean()
    check_nothing_left(sparing)


def test_two_creates_at_once_never_get_the_same(sparing):
    make(sparing)
    specs = [sparing.spec() for _ in range(3)]
    threads = [threading.Thread(target=sparing.driver.create, args=(spec,)) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pid_of(sparing, spec) for spec in specs}) == len(specs)
    for spec in specs:
        check_runs(sparing, spec)


@pytest.mark.parametrize("point", MAKING)
def test_the_death_of_who_makes_one(sparing, tmp_path, point):
    crash_making(sparing, tmp_path, point)
    whole = point == "spare.ready"
    assert warm_spares.count_ready(sparing.driver.host) == ({image(sparing): 1} if whole else {})
    assert sparing.driver.list_sandboxes() == {}
    assert sparing.driver.tend_suspended().ended == (0 if whole else 1)
    if not whole:
        check_nothing_left(sparing)
        make(sparing)
    check_runs(sparing, sparing.create())


@pytest.mark.parametrize("point", (*TAKING, *points("create")))
def test_the_death_of_who_takes_one(sparing, tmp_path, point):
    spare = make(sparing)
    spec = sparing.spec()
    sparing.crash_at(point, tmp_path, "create", spec)
    assert warm_spares.count_ready(sparing.driver.host) == {}
    assert sparing.driver.list_sandboxes() in ({}, {spec.sandbox_id: VmState.PARTIAL})
    sparing.driver.create(spec)
    check_runs(sparing, spec)
    sparing.driver.tend_suspended()
    assert not spare.path.exists()
    check_nothing_left(sparing)
    sparing.driver.destroy(spec.sandbox_id)
    check_nothing_left(sparing)


@pytest.mark.parametrize("point", (*TAKING, *points("create")))
def test_what_a_dead_taker_left_is_reclaimed(sparing, tmp_path, point):
    make(sparing)
    sparing.crash_at(point, tmp_path, "create", sparing.spec())
    sparing.driver.reclaim()
    assert sparing.driver.list_sandboxes() == {}
    check_nothing_left(sparing)


@pytest.mark.parametrize("point", (*TAKING, *before("create", "running")))
def test_one_that_cannot_be_taken_is_done_without(sparing, tmp_path, monkeypatch, point):
    spare = make(sparing)
    process = spare.find_record().pid
    (tmp_path / "fault").write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    spec = sparing.create()
    check_runs(sparing, spec)
    assert pid_of(sparing, spec) != process
    sparing.driver.tend_suspended()
    check_nothing_left(sparing)


def test_a_create_that_does_without_the_one_it_took_still_holds_the_sandbox(
        sparing, tmp_path, monkeypatch):
    """The lock that it took first went with the directory that was exchanged."""
    (tmp_path / "fault").write_text("create.loaded raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    make(sparing)
    spec, held = sparing.spec(), []
    known = create.record_new_sandbox

    def looked_at(*arguments):
        with sparing.driver.host.rundir(spec.sandbox_id).nobody_at_work() as idle:
            held.append(not idle)
        return known(*arguments)

    monkeypatch.setattr(create, "record_new_sandbox", looked_at)
    sparing.driver.create(spec)
    assert held == [True], "somebody else could have taken it"
    check_runs(sparing, spec)


def test_one_whose_process_ended_is_not_taken(sparing):
    spare = make(sparing)
    os.kill(spare.find_record().pid, signal.SIGKILL)
    while spare.is_alive():
        time.sleep(0.01)
    check_runs(sparing, sparing.create())
    assert sparing.driver.tend_suspended().ended == 1


def test_one_whose_process_ends_as_it_is_taken_is_done_without(sparing):
    os.kill(make(sparing).find_record().pid, signal.SIGKILL)
    check_runs(sparing, sparing.create())


def test_they_survive_the_start_of_a_worker(sparing):
    make(sparing)
    sparing.driver.reclaim()
    assert warm_spares.count_ready(sparing.driver.host) == {image(sparing): 1}
    check_runs(sparing, sparing.create())


def test_they_are_given_up_when_too_many_or_memory_is_short(sparing, real, monkeypatch):
    for _ in range(2):
        make(sparing)
    assert sparing.driver.tend_suspended().ended == 1, "one is wanted while nothing was asked for"
    monkeypatch.setattr(host_memory, "is_short", lambda: True)
    assert sparing.driver.tend_suspended().ended == 1
    assert making_spares.find_missing(sparing.driver.host) == ""


def test_its_unused_memory_is_free_on_the_disk_until_its_guest_goes_on(sparing, monkeypatch):
    size = SHAPE.mem_mb * MIB
    spare = make(sparing)
    process = spare.find_record().pid
    assert occupied_bytes(spare.ram) < size / 2
    spec = sparing.create()
    assert pid_of(sparing, spec) == process
    assert occupied_bytes(sparing.driver.host.rundir(spec.sandbox_id).ram) >= size
    check_runs(sparing, spec)
    make(sparing)
    monkeypatch.setattr(ram_room, "_free_bytes", lambda host: 0)
    with pytest.raises(NoDiskSpace):
        sparing.create()
    assert [*sparing.driver.list_sandboxes()] == [spec.sandbox_id]
    check_nothing_left(sparing)


def test_they_are_given_up_while_the_disk_is_below_its_floor(sparing, monkeypatch):
    make(sparing)
    assert sparing.driver.tend_suspended().ended == 0
    monkeypatch.setattr(sparing.driver.host.disk_floor, "bytes", 1 << 60)
    assert sparing.driver.tend_suspended().ended == 1
    check_nothing_left(sparing)


def test_they_are_given_up_before_what_makes_a_wake_quick(sparing, monkeypatch):
    lab = Lab({**sparing.environ, "SVC_KEPT_MACHINES": "1"}, sparing.numbers)
    host, spec = lab.driver.host, lab.create()
    lab.driver.hibernate(spec.sandbox_id)
    make(lab)
    monkeypatch.setattr(host_memory, "is_short", lambda: bool(warm_spares.count_ready(host)))
    found = lab.driver.tend_suspended()
    assert (found.ended, found.spares, found.kept) == (1, 0, 1)
    assert not lab.driver.wake(spec).cold


def test_its_slot_is_given_to_who_needs_one(narrow_lab):
    lab, source = narrow_lab, narrow_lab.create()
    lab.driver.snapshot(source.sandbox_id, "snap")
    spare = make(lab)
    fill_slots(lab, leave=2)
    check_runs(lab, lab.create("snap"))
    assert not spare.path.exists()


def test_an_idle_host_makes_one(sparing, monkeypatch):
    monkeypatch.setattr(making_spares, "_IDLE_SHARE", 0.0)
    deadline = time.monotonic() + 60
    while not warm_spares.count_ready(sparing.driver.host):
        assert time.monotonic() < deadline
        sparing.driver.tend_suspended()
        time.sleep(0.5)
    assert warm_spares.count_ready(sparing.driver.host) == {image(sparing): 1}
