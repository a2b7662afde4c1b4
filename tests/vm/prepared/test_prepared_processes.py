"""Processes that were started ahead of need: a restore takes one over, which is like any other then
and nobody else's."""
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.qemu.process import argv, making_prepared, prepared_processes
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from tests.host.driver_checks import (
    GROWN_BYTES,
    check_disk_limits,
    check_grown,
    check_is_itself,
    fill_slots,
    note_rehearsals,
    pid_of,
    with_note,
)
from tests.host.driver_lab import SHAPE, Lab
from tests.stack.waiting import until
from tests.vm.prepared.checks import check_nothing_left, make


def test_a_create_a_wake_and_a_fork_take_one_over(preparing):
    pid, rundir = make(preparing)
    spec = preparing.create()
    assert pid_of(preparing, spec) == pid and not rundir.path.exists()
    preparing.shell(spec, "echo here > /dev/shm/memory; echo there > /root/disk")
    preparing.driver.hibernate(spec.sandbox_id)
    pid, _ = make(preparing)
    assert not preparing.driver.wake(spec).cold
    assert pid_of(preparing, spec) == pid
    preparing.driver.snapshot(spec.sandbox_id, "snap")
    pid, _ = make(preparing)
    fork = preparing.create("snap")
    assert pid_of(preparing, fork) == pid
    for each in (spec, fork):
        check_is_itself(preparing, each)
        assert preparing.shell(each, "cat /dev/shm/memory /root/disk") == "here\nthere\n"
    preparing.clean()
    check_nothing_left(preparing)


def test_its_guest_rehearses_a_command_like_any_other_that_was_restored(preparing, monkeypatch):
    told = note_rehearsals(monkeypatch)
    make(preparing)
    spec = preparing.create()
    preparing.driver.hibernate(spec.sandbox_id)
    make(preparing)
    preparing.driver.wake(spec)
    assert told == [True, True]


def test_its_disk_is_captured_flattened_grown_and_saved_like_any_other(preparing):
    make(preparing)
    spec = with_note(preparing)
    for number in range(preparing.settings.chain_depth_limit + 2):
        preparing.shell(spec, f"echo {number} >> /root/disk; sync")
        preparing.driver.snapshot(spec.sandbox_id, f"snap{number}")
    preparing.driver.grow_disk(spec.sandbox_id, GROWN_BYTES)
    for _ in range(2):
        preparing.driver.hibernate(spec.sandbox_id)
        pid, _ = make(preparing)
        assert not preparing.driver.wake(spec).cold
        assert pid_of(preparing, spec) == pid
    check_grown(preparing, spec, b"first")
    assert preparing.shell(spec, "tail -n 1 /root/disk") == f"{number}\n"


def test_layers_that_it_was_given_at_once_are_let_go_when_they_are_flattened(preparing):
    spec = preparing.create()
    rundir = preparing.driver.host.rundir(spec.sandbox_id)
    limit = preparing.settings.chain_depth_limit
    for number in range(limit):
        preparing.shell(spec, f"echo {number} >> /root/disk; sync")
        preparing.driver.snapshot(spec.sandbox_id, f"snap{number}")
    preparing.driver.hibernate(spec.sandbox_id)
    assert len(rundir.chain()) > limit
    pid, _ = make(preparing)
    preparing.driver.wake(spec)
    assert pid_of(preparing, spec) == pid
    for number in range(limit, limit + 2):
        preparing.driver.snapshot(spec.sandbox_id, f"snap{number}")
        with Monitor.of(rundir) as monitor:
            while monitor.run("query-block-jobs"):
                time.sleep(0.02)
    preparing.driver.snapshot(spec.sandbox_id, "last")
    with Monitor.of(rundir) as monitor:
        nodes = {node["node-name"] for node in monitor.run("query-named-block-nodes")
                 if not node["node-name"].startswith("#")}
    names = {argv.node_name(reference) for reference in rundir.chain()}
    assert nodes == names | {argv.file_name(name) for name in names}
    assert preparing.shell(spec, "echo 3 > /proc/sys/vm/drop_caches; tail -n 1 /root/disk") == (
        f"{limit - 1}\n")


def test_it_is_as_confined_as_any_other(preparing):
    make(preparing)
    spec = preparing.create()
    pid = pid_of(preparing, spec)
    limits = Path(f"/proc/{pid}/limits").read_text()
    preparing.driver.hibernate(spec.sandbox_id)
    preparing.driver.wake(spec)
    other = pid_of(preparing, spec)
    assert other != pid and Path(f"/proc/{other}/limits").read_text() == limits


def test_its_guest_may_use_its_disk_as_fast_as_any_other(preparing):
    make(preparing)
    spec = preparing.create()
    check_disk_limits(preparing, spec)
    preparing.driver.hibernate(spec.sandbox_id)
    make(preparing)
    preparing.driver.wake(spec)
    check_disk_limits(preparing, spec)


def test_what_it_was_shown_is_gone_before_its_guest_executes(preparing):
    make(preparing)
    spec = preparing.create()
    pid = pid_of(preparing, spec)
    assert os.listdir(f"/proc/{pid}/root{argv.SHOWN_AT}") == []
    files = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    assert not any("prepared" in name and "(deleted)" not in name for name in files), files
    assert os.stat(preparing.driver.host.rundir(spec.sandbox_id).ram).st_nlink == 1


def test_it_is_charged_from_the_moment_it_is_taken(preparing):
    make(preparing)
    time.sleep(3)
    began = time.monotonic()
    spec = preparing.create()
    used = preparing.driver.read_usage(spec.sandbox_id)
    assert used.age_ms <= (time.monotonic() - began) * 1000


def test_two_starts_at_once_never_get_the_same(preparing):
    make(preparing)
    specs = [preparing.spec() for _ in range(3)]
    threads = [threading.Thread(target=preparing.driver.create, args=(spec,)) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pid_of(preparing, spec) for spec in specs}) == len(specs)
    for spec in specs:
        check_is_itself(preparing, spec)


def test_another_kind_of_machine_does_not_get_it(preparing):
    spec = preparing.create()
    preparing.driver.snapshot(spec.sandbox_id, "snap")
    preparing.driver.destroy(spec.sandbox_id)
    host = preparing.driver.host
    machine = host.find_snapshot("snap").machine
    pid, _ = make(preparing)
    bare = replace(machine, chain=(machine.chain[0], *machine.chain[2:]))
    with prepared_processes.taken(host, bare) as waiting:
        assert waiting is None, "its disk stands on other layers"
    with prepared_processes.taken(host, machine) as waiting:
        assert waiting.process.pid == pid
        prepared_processes.discard(host, waiting.rundir)


def test_it_survives_the_start_of_a_worker(preparing):
    pid, _ = make(preparing)
    preparing.driver.reclaim()
    spec = preparing.create()
    assert pid_of(preparing, spec) == pid
    check_is_itself(preparing, spec)


def test_they_are_ended_when_memory_is_short_or_they_are_old(preparing, monkeypatch):
    make(preparing)
    assert preparing.driver.tend_suspended().prepared == 1
    monkeypatch.setattr(prepared_processes, "_LONGEST_S", 0.0)
    assert preparing.driver.tend_suspended().ended == 1
    make(preparing)
    monkeypatch.undo()
    monkeypatch.setattr(host_memory, "is_short", lambda: True)
    assert preparing.driver.tend_suspended().ended == 1
    host = preparing.driver.host
    making_prepared.prepare(host, host.find_warm_image(SHAPE))
    assert prepared_processes.count(host) == 0


def test_its_slot_is_given_up_for_a_sandbox(narrow_lab):
    lab, does_without = (
        Lab({**narrow_lab.environ, "SVC_PREPARED_PROCESSES": number, "SVC_WARM_SPARES": "0"},
            narrow_lab.numbers) for number in ("2", "0"))
    make(lab)
    fill_slots(lab, leave=1)
    check_is_itself(lab, does_without.create())
    assert prepared_processes.count(lab.driver.host) == 0


def test_another_is_started_a_moment_after_one_was_taken(real):
    lab = Lab({**real.environ, "SVC_PREPARED_PROCESSES": "1"}, real.numbers)
    lab.create()
    until(lambda: prepared_processes.count(lab.driver.host))
    [(_, ready)] = prepared_processes._list_ready(lab.driver.host)
    spec = lab.create()
    assert pid_of(lab, spec) == ready["pid"]
    until(lambda: prepared_processes.count(lab.driver.host))
    real.driver.tend_suspended()
    check_nothing_left(lab)
