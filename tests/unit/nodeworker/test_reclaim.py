"""Reclaim decides under the lock: what is finished or begun anew between its look and its lock
stays."""
import os
import threading
import time

import pytest

from nodeworker.disks import durable
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.operations import reclaim
from nodeworker.hypervisor.qemu.rundir import boot_id
from tests.host.disk_node import SHAPE, Node


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


def test_what_cannot_be_removed_is_said_and_keeps_nothing_else_from_it(node, caplog):
    host = node.host
    stray = [folder / "a.tmp" for folder in (host.sandboxes, host.snapshots, host.warm_images)]
    for path in stray:
        path.write_text("no directory, as it should be")
        path.with_name("b.tmp").mkdir()
    reclaim._remove_half_made(host)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    for path in stray:
        assert path.exists() and not path.with_name("b.tmp").exists()
        assert any(f"{path} is half made and cannot be removed" in line for line in said)


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


@pytest.fixture
def long_ago(monkeypatch):
    """From then on whatever is in the trash has been there for long."""
    return lambda: monkeypatch.setattr(durable, "_OLD_S", -1.0)


def test_what_dead_workers_left_of_a_deletion_goes_once_nobody_can_be_at_it(node, long_ago):
    box, kept = node.create(), node.create()
    taken = node.snapshot(box)
    node.write(kept, 0, 1)
    node.die_in("destroy", "destroy.put_aside", box)
    node.die_in("delete_snapshot", "delete.files_removed", taken)
    node.die_in("destroy", "destroy.killed", kept)
    (node.host.trash / "box.0123abcd").mkdir()
    node.driver.collect_garbage()
    put_aside = {f"{box}.ending", f"{taken}.deleting"}
    assert names(node.host.trash) == {"box.0123abcd", *put_aside}
    long_ago()
    node.driver.collect_garbage()
    durable._deletions.submit(int).result()
    assert names(node.host.trash) == set()
    del node.sandboxes[box], node.snapshots[taken]
    node.check_exact()
    node.check_content("sandboxes", kept)


def test_half_a_copy_of_a_warm_image_s_memory_that_a_dead_worker_left_goes_without_a_start_too(
        node):
    image = node.host.warm_image_dir(SHAPE).name
    copies = node.host.settings.node_dir / "spares" / image
    copies.mkdir()
    (copies / "0123.half").write_bytes(b"mem")
    (copies / f"0123.{boot_id()}").write_bytes(b"memory")
    node.driver.collect_garbage()
    assert names(copies) == {f"0123.{boot_id()}"}


@pytest.mark.slow
@pytest.mark.parametrize("at_work", [False, True])
def test_what_was_made_anew_under_its_name_stays(node, long_ago, monkeypatch, at_work):
    box = node.create()
    node.die_in("destroy", "destroy.put_aside", box)
    rundir = node.host.rundir(box)
    released = []
    monkeypatch.setattr(type(node.host.network), "release", lambda _, name: released.append(name))
    lock = locks.wait_lock(rundir.path / "op.lock", make_directory=True)
    if not at_work:
        (rundir.path / "vm.json").write_text("{}")
        os.close(lock)
    long_ago()
    node.driver.collect_garbage()
    assert rundir.path.exists() and released == []
