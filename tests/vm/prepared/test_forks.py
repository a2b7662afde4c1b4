"""The process of a fork gets its memory and its lower layers while its capture is written down."""
import contextlib
import hashlib
import os
import signal
import subprocess
import sys

import pytest

from bin.stack.site import ROOT
from nodeworker.hypervisor.qemu.process import fork_memory_ahead
from tests.host.driver_checks import check_disk_limits, check_is_itself, pid_of, points, with_note
from tests.stack.waiting import until
from tests.vm.prepared.checks import check_nothing_left, make

CAPTURE = """
import os
import sys
import time
from config.settings import load
from nodeworker.hypervisor.factory import make_driver
make_driver(load(os.environ)).snapshot(sys.argv[1], "carrier", transient=True)
time.sleep(60)
"""


@pytest.fixture
def source(preparing):
    """A sandbox with content in memory and on its disk, of which captures are made."""
    spec = with_note(preparing)
    preparing.shell(spec, "echo here > /dev/shm/memory; echo there > /root/disk")
    yield spec
    for each in preparing.driver.list_sandboxes():
        preparing.driver.destroy(each)
    preparing.driver.delete_snapshot("carrier")
    assert fork_memory_ahead._under_way == []
    check_nothing_left(preparing)


def capture(lab, source):
    lab.driver.snapshot(source.sandbox_id, "carrier", transient=True)
    return lab.driver.host.captured_ram("carrier")


def digest(path):
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def check_is_copy(lab, fork):
    check_is_itself(lab, fork)
    assert lab.shell(fork, "cat /dev/shm/memory /root/disk") == "here\nthere\n"


@pytest.fixture
def given(monkeypatch):
    """What was given to a start with its memory and its lower layers, or None where none was."""
    known, seen = fork_memory_ahead._Preparation.taken, []

    @contextlib.contextmanager
    def taken(preparation):
        with known(preparation) as waiting:
            seen.append(waiting)
            yield waiting

    monkeypatch.setattr(fork_memory_ahead._Preparation, "taken", taken)
    return seen


def test_a_fork_takes_over_what_has_its_memory_already(preparing, source, given, monkeypatch):
    monkeypatch.setattr(fork_memory_ahead, "_LONGEST_S", 60.0)
    pid, rundir = make(preparing)
    capture(preparing, source)
    fork = preparing.create("carrier")
    [waiting] = given
    assert waiting.monitor is not None and waiting.process.pid == pid == pid_of(preparing, fork)
    assert not rundir.path.exists()
    check_is_copy(preparing, fork)
    check_disk_limits(preparing, fork)
    preparing.shell(source, "true")
    assert os.stat(preparing.driver.host.rundir(fork.sandbox_id).ram).st_nlink == 1


def test_nobody_else_gets_it(preparing, source, monkeypatch):
    monkeypatch.setattr(fork_memory_ahead, "_LONGEST_S", 60.0)
    pid, _ = make(preparing)
    capture(preparing, source)
    other = preparing.create()
    assert pid_of(preparing, other) != pid
    fork = preparing.create("carrier")
    assert pid_of(preparing, fork) == pid
    check_is_copy(preparing, fork)


def test_one_that_nobody_comes_for_is_ended_and_has_changed_nothing(
        preparing, source, monkeypatch):
    pid, rundir = make(preparing)
    known, before = fork_memory_ahead.make_machine, []

    def make_machine(host, waiting, monitor, frozen, ram):
        before.append(digest(f"/proc/self/fd/{ram}"))
        known(host, waiting, monitor, frozen, ram)

    monkeypatch.setattr(fork_memory_ahead, "make_machine", make_machine)
    ram = capture(preparing, source)
    until(lambda: not rundir.path.exists() and fork_memory_ahead._under_way == [])
    assert not os.path.exists(f"/proc/{pid}/exe")
    assert [digest(ram)] == before
    check_is_copy(preparing, preparing.create("carrier"))


@pytest.mark.parametrize("point", points("given"))
def test_one_that_fails_is_done_without(preparing, source, tmp_path, monkeypatch, point):
    pid, rundir = make(preparing)
    (tmp_path / "fault").write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    capture(preparing, source)
    fork = preparing.create("carrier")
    assert pid_of(preparing, fork) != pid
    check_is_copy(preparing, fork)
    until(lambda: not rundir.path.exists())


@pytest.mark.parametrize("tended_first", [True, False])
@pytest.mark.parametrize("point", points("given"))
def test_the_death_of_who_gives(preparing, source, tmp_path, point, tended_first):
    make(preparing)
    fault = tmp_path / "fault"
    fault.write_text(f"{point} kill")
    environ = {**os.environ, **preparing.environ, "SVC_FAULT_FILE": str(fault)}
    done = subprocess.run([sys.executable, "-c", CAPTURE, source.sandbox_id], cwd=ROOT,
                          env=environ, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL and not fault.exists()
    if tended_first:
        assert preparing.driver.tend_suspended().ended == 1
    capture(preparing, source)
    check_is_copy(preparing, preparing.create("carrier"))
    preparing.driver.tend_suspended()
