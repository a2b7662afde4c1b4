"""Pruning: an image or warm image goes only if no record, no process and no node directory can
still need it."""
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from bin.stack.site import ROOT
from guest.presets import LOCK
from nodeworker.disks import directory_id
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.images import image_holders
from nodeworker.hypervisor.qemu.images import prune as pruning
from nodeworker.hypervisor.qemu.images.prune import prune
from tests.host.disk_node import SHAPE, Node, make_image, make_warm_image


@pytest.fixture
def node(tmp_path):
    """A node whose first image, `base`, is not the current one any more."""
    made = Node(tmp_path)
    made.images = tmp_path / "images"
    made.old_warm_image = made.host.warm_image_dir(SHAPE).name
    return made


@pytest.fixture
def no_processes(monkeypatch):
    """As if every worker that ever opened an image had ended; this process is one of them."""
    monkeypatch.setattr(pruning, "is_held", lambda path: False)


def renew(node, key="newer"):
    """`make image`, and a worker that was started after it."""
    make_image(node.images, key)
    node.restart()
    make_warm_image(node.host)


def found(node, **options):
    return {(each.kind, each.path.name) for each in prune(node.images, **options)}


def test_what_a_machine_stands_on_goes_when_the_last_that_needs_it_is_gone(node, no_processes):
    sandbox_id = node.create()
    node.write(sandbox_id, 1, 11)
    snapshot_id = node.snapshot(sandbox_id)
    old = {("warm image", node.old_warm_image), ("image", "base")}
    renew(node)
    assert found(node) == set()
    node.driver.destroy(sandbox_id)
    assert found(node) == set()
    node.check_content("snapshots", snapshot_id)
    node.driver.delete_snapshot(snapshot_id)
    assert found(node, dry_run=True) == old and (node.images / "images" / "base").exists()
    assert found(node) == old
    assert found(node) == set()
    assert sorted(path.name for path in (node.images / "images").iterdir()) == ["current", "newer"]
    assert [path.name for path in (node.images / "templates").iterdir()] == [
        node.host.warm_image_dir(SHAPE).name
    ]


def test_another_node_of_the_same_host_keeps_what_it_needs(node, no_processes, tmp_path):
    other = Node(tmp_path, name="other")
    other.create()
    renew(node)
    assert found(node) == set()
    shutil.rmtree(tmp_path / "other")
    with pytest.raises(DriverError, match="other is not there"):
        found(node)
    assert len(found(node, forget_missing=True)) == 2
    assert found(node) == set(), "what was forgotten is not asked about again"


def test_a_node_that_was_removed_on_purpose_is_not_asked_about(node, no_processes, tmp_path):
    other = Node(tmp_path, name="other")
    other.create()
    renew(node)
    shutil.rmtree(tmp_path / "other")
    for _ in range(2):
        image_holders.unregister(node.images, tmp_path / "other")
    assert len(found(node)) == 2


def test_a_worker_that_still_works_with_an_older_image_keeps_it(node):
    lines = "\n".join(
        ("import os, sys", "from config.settings import load",
         "from nodeworker.hypervisor.qemu.host import Host", "Host(load(os.environ)).image",
         "print('ready', flush=True)", "sys.stdin.read()"))
    worker = subprocess.Popen([sys.executable, "-c", lines], cwd=ROOT,
                              env={**os.environ, **node.environ}, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout.readline() == "ready\n"
        make_image(node.images, "newer")
        assert found(node) == set()
        worker.stdin.close()
    assert worker.returncode == 0


def test_nothing_is_pruned_while_a_record_cannot_be_read_or_an_image_is_built(node, no_processes):
    sandbox_id = node.create()
    renew(node)
    record = node.host.sandboxes / sandbox_id / "vm.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:50])
    with pytest.raises(DriverError, match="cannot be read"):
        prune(node.images)
    record.write_bytes(whole)
    with pruning._building_locked(node.images), pytest.raises(DriverError, match="being built"):
        prune(node.images)
    assert (node.images / "images" / "base").exists()


def test_the_image_with_the_agent_presets_goes_once_there_is_a_newer_one(node, no_processes):
    make_image(node.images, "newer-p1")
    renew(node)
    pointer = node.images / "images" / "presets"
    pointer.symlink_to("newer-p1")
    assert ("image", "newer-p1") not in found(node, dry_run=True)
    pointer.unlink()
    pointer.symlink_to("newer-p2")
    with locks.locked(node.images / LOCK), pytest.raises(DriverError, match="being built"):
        prune(node.images)
    assert ("image", "newer-p1") in found(node)


def test_a_prune_that_was_killed_is_finished_by_the_next(node, no_processes):
    half = node.images / "templates" / ".pruned-something"
    half.mkdir()
    (half / "ram").write_bytes(b"x")
    assert found(node) == set()
    assert not half.exists()


def test_the_command_says_what_it_removed(node, tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "nodeworker.commands.prune", *arguments],
                              cwd=ROOT, text=True, check=False, env={**os.environ, **node.environ},
                              capture_output=True)
    (node.images / "images" / "gone").mkdir()
    make_image(node.images, "third")
    make_image(node.images, "newest")
    assert run("--dry-run").stdout == "image third 0 MB\n"
    assert run().stdout == "image third 0 MB\n"
    assert run().stdout == "everything that is here is needed\n"
    shutil.rmtree(tmp_path / "node")
    refused = run()
    assert refused.returncode == 1 and "--forget-missing" in refused.stderr


def test_records_are_read_while_nobody_takes_over_what_another_one_names(node, no_processes):
    source = node.create()
    node.write(source, 1, 11)
    snapshot_id = node.snapshot(source)
    node.driver.destroy(source)
    renew(node)
    with ThreadPoolExecutor() as pool:
        with node.host.layers.referring():
            pruned = pool.submit(found, node)
            assert wait([pruned], 0.3).not_done
            sandbox_id = node.create(snapshot_id)
        assert pruned.result(20) == set()
    node.check_content("sandboxes", sandbox_id)


def test_a_directory_without_its_id_may_be_a_mount_point_without_its_disk(node, no_processes):
    renew(node)
    (node.directory / "node" / directory_id.NAME).unlink()
    with pytest.raises(DriverError, match="mount its disk"):
        prune(node.images)
    assert (node.images / "images" / "base").exists()
