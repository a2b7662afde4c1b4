"""Whoever starts a process ahead, or takes it over, dies; or the process is silent or gone: nothing
of it is left, and the sandbox is as any other."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from nodeworker.hypervisor.qemu.process import assemble_machine, making_prepared, prepared_processes
from tests.host.driver_checks import check_is_itself, pid_of, points, with_note
from tests.vm.prepared.checks import check_nothing_left, make

TAKING = ("prepared.taken", "prepared.handed_over", "prepared.assembled", "prepared.locked")
PREPARE = """
import os
from config.settings import load
from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.making_prepared import prepare
host = Host(load(os.environ))
prepare(host, host.find_warm_image(Shape(1, 1024)))
"""


@pytest.mark.parametrize("point", points("prepare"))
def test_the_death_of_who_starts_one(preparing, tmp_path, point):
    fault = tmp_path / "fault"
    fault.write_text(f"{point} kill")
    environ = {**os.environ, **preparing.environ, "SVC_FAULT_FILE": str(fault)}
    done = subprocess.run([sys.executable, "-c", PREPARE], cwd=ROOT, env=environ, timeout=120,
                          check=False)
    assert done.returncode == -signal.SIGKILL and not fault.exists()
    whole = point == "prepare.ready"
    assert prepared_processes.count(preparing.driver.host) == int(whole)
    assert preparing.driver.tend_suspended().ended == int(not whole)
    if not whole:
        preparing.driver.reclaim()
        check_nothing_left(preparing)
    check_is_itself(preparing, preparing.create())


def asleep(lab):
    spec = with_note(lab)
    lab.driver.hibernate(spec.sandbox_id)
    return spec


@pytest.mark.parametrize("point", TAKING)
@pytest.mark.parametrize(("operation", "tended_first"), [
    ("create", True), ("create", False), ("wake", False)])
def test_the_death_of_who_takes_one(preparing, tmp_path, operation, point, tended_first):
    spec = asleep(preparing) if operation == "wake" else preparing.spec()
    make(preparing)
    preparing.crash_at(point, tmp_path, operation, spec)
    assert prepared_processes.count(preparing.driver.host) == 0
    if tended_first:
        assert preparing.driver.tend_suspended().ended == 1
    assert not getattr(preparing.driver, operation)(spec).cold
    check_is_itself(preparing, spec)
    preparing.driver.tend_suspended()
    check_is_itself(preparing, spec)
    if operation == "wake":
        assert preparing.agent(spec).read_file("/home/user/note", 100) == b"first"
    check_nothing_left(preparing)


@pytest.mark.parametrize("point", TAKING)
def test_what_a_dead_taker_left_is_reclaimed(preparing, tmp_path, point):
    make(preparing)
    preparing.crash_at(point, tmp_path, "create", preparing.spec())
    preparing.driver.reclaim()
    assert preparing.driver.list_sandboxes() == {}
    check_nothing_left(preparing)


@pytest.mark.parametrize(("operation", "point"), [
    *(("create", point) for point in TAKING), ("wake", TAKING[-1])])
def test_one_that_cannot_be_taken_is_done_without(preparing, tmp_path, monkeypatch, operation,
                                                  point):
    spec = asleep(preparing) if operation == "wake" else preparing.spec()
    pid, rundir = make(preparing)
    (tmp_path / "fault").write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    assert not getattr(preparing.driver, operation)(spec).cold
    check_is_itself(preparing, spec)
    assert pid_of(preparing, spec) != pid and not rundir.path.exists()
    check_nothing_left(preparing)


def is_there(pid):
    """True for a process that has not ended; one that was not collected yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_that_does_not_answer_is_replaced_and_done_without(preparing, monkeypatch):
    monkeypatch.setattr(assemble_machine, "_ANSWER_LIMIT_S", 3.0)
    known, started = making_prepared._start, []

    def start(*arguments):
        started.append(known(*arguments))
        if len(started) == 1:
            os.kill(started[0].pid, signal.SIGSTOP)
        return started[-1]

    monkeypatch.setattr(making_prepared, "_start", start)
    pid, rundir = make(preparing)
    assert started[-1].pid == pid and not is_there(started[0].pid)
    os.kill(pid, signal.SIGSTOP)
    spec = preparing.create()
    check_is_itself(preparing, spec)
    assert pid_of(preparing, spec) != pid and not is_there(pid)
    assert not rundir.path.exists()


def test_one_whose_process_ended_is_not_taken(preparing):
    pid, rundir = make(preparing)
    os.kill(pid, signal.SIGKILL)
    while rundir.is_alive():
        time.sleep(0.01)
    check_is_itself(preparing, preparing.create())
    assert preparing.driver.tend_suspended().ended == 1
