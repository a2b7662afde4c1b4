"""Reclaim decides under the lock: what is finished or begun anew between its look and its lock
stays."""
import os
import threading
import time

import pytest

from nodeworker.disks import durable
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.operations import reclaim
from tests.host.disk_node import Node


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """The file that appears as soon as reclaim has seen something half made."""
    path = tmp_path / "fault"
    path.write_text("reclaim.half_made_seen sleep:0")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    return tmp_path / "fault.done"


def finish_when(seen, node, name):
    """A create at work: it holds the lock, and completes once reclaim has looked at the sandbox."""
    rundir, begun = node.host.rundir(name), threading.Event()

    def work():
        with rundir.operation(create=True):
            (rundir.path / "ram").write_bytes(b"saved")
            begun.set()
            deadline = time.monotonic() + 30
            while not seen.exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            (rundir.path / "vm.json").write_text("{}")

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    return thread


def test_a_create_that_finishes_while_reclaim_waits_for_its_lock_stays(node, seen):
    thread = finish_when(seen, node, "box")
    reclaim._remove_half_made(node.host)
    thread.join()
    assert seen.exists()
    assert (node.host.sandboxes / "box" / "ram").exists()


def test_what_a_dead_create_left_is_removed(node):
    with node.host.rundir("box").operation(create=True):
        pass
    kept = node.create()
    reclaim._remove_half_made(node.host)
    assert [path.name for path in node.host.sandboxes.iterdir()] == [kept]


def test_a_snapshot_begun_anew_is_not_taken_for_the_half_made_one_before_it(node, monkeypatch):
    directory = node.host.snapshots / "snap.tmp"
    directory.mkdir()

    def begun_anew(descriptor, operation):
        """As if the sandbox was snapshotted again in the moment before reclaim has the lock."""
        directory.rename(directory.with_name("earlier"))
        directory.mkdir()
        (directory / "lock").touch()

    monkeypatch.setattr("fcntl.flock", begun_anew)
    reclaim._remove_half_made(node.host)
    assert directory.exists()


def test_a_snapshot_that_is_completed_while_reclaim_looks_stops_nothing(node, monkeypatch):
    directory = node.host.snapshots / "snap.tmp"
    directory.mkdir()
    opened = os.open

    def completed(path, *arguments):
        if directory.exists():
            directory.rename(directory.with_suffix(""))
        return opened(path, *arguments)

    monkeypatch.setattr("os.open", completed)
    reclaim._remove_half_made(node.host)
    assert (node.host.snapshots / "snap").exists()


def names(directory):
    return {path.name for path in directory.iterdir()}


def test_what_dead_workers_left_of_snapshots_goes_without_a_start_too(node):
    for name in ("left.tmp", "whole"):
        (node.host.snapshots / name).mkdir()
    at_work = locks.wait_lock(node.host.snapshots / "busy.tmp" / "lock", make_directory=True)
    node.driver.collect_garbage()
    assert names(node.host.snapshots) == {"busy.tmp", "whole"}
    os.close(at_work)
    node.driver.collect_garbage()
    assert names(node.host.snapshots) == {"whole"}


def test_what_dead_workers_left_of_a_deletion_goes_once_nobody_can_be_at_it(node, monkeypatch):
    put_aside = {"box.ending", "snap.deleting"}
    for name in ("box.0123abcd", *put_aside):
        (node.host.trash / name).mkdir()
        (node.host.trash / name / "ram").write_bytes(b"saved")
    node.driver.collect_garbage()
    assert names(node.host.trash) == {"box.0123abcd", *put_aside}
    monkeypatch.setattr(durable, "_DELETED_BY_THEN_S", -1.0)
    node.driver.collect_garbage()
    assert names(node.host.trash) == put_aside, "who put them aside comes for them again"


def test_a_process_of_a_wake_that_begins_meanwhile_is_not_ended_as_a_stray(node, monkeypatch):
    name = node.create()
    rundir, killed = node.host.rundir(name), []
    monkeypatch.setattr(node.host.cgroups, "names", lambda: {name})
    monkeypatch.setattr(node.host.cgroups, "pids", lambda owner: {4711})
    monkeypatch.setattr(os, "kill", lambda pid, signum: killed.append(pid))
    waking, woken = threading.Event(), threading.Event()

    def wake():
        with rundir.operation():
            waking.set()
            woken.wait()

    def looked(host, owner):
        """A wake begins right after reclaim saw that there was none."""
        thread.start()
        waking.wait()
        return False

    thread = threading.Thread(target=wake)
    monkeypatch.setattr(reclaim, "_is_live", looked)
    try:
        reclaim._end_strays(node.host)
    finally:
        woken.set()
        thread.join()
    assert killed == []


def test_a_snapshot_that_another_worker_completes_meanwhile_is_the_answer_of_both(
        node, tmp_path, monkeypatch):
    name, answers = node.create(), []
    (tmp_path / "fault").write_text("snapshot.looked sleep:1")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    slow = threading.Thread(target=lambda: answers.append(node.driver.snapshot(name, "snap")))
    slow.start()
    while not (tmp_path / "fault.done").exists():
        time.sleep(0.001)
    answers.append(node.driver.snapshot(name, "snap"))
    slow.join()
    assert len(answers) == 2 and answers[0] == answers[1]
    assert [path.name for path in node.host.snapshots.iterdir()] == ["snap"]


def test_a_snapshot_whose_directory_is_taken_away_before_it_is_locked_makes_it_again(
        node, monkeypatch):
    name, directory = node.create(), node.host.snapshots / "snap.tmp"
    mkdir, taken = type(directory).mkdir, []

    def taken_away(path, *arguments, **options):
        mkdir(path, *arguments, **options)
        if path == directory and not taken:
            taken.append(path)
            reclaim._remove_half_made(node.host)

    monkeypatch.setattr(type(directory), "mkdir", taken_away)
    node.driver.snapshot(name, "snap")
    assert taken and node.driver.list_snapshots() == {"snap"}
