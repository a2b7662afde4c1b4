"""Deleting frees exactly what nothing else needs: random lives of sandboxes and snapshots, workers
dying among them.

The real driver works on real disk layers, of sandboxes that are always asleep, so that no machine
is started.
"""
import os
import random
import threading
import time
from dataclasses import replace

import pytest

from nodeworker.disks.sizes import tree_bytes
from nodeworker.hypervisor.driver import DriverError, VmNotFound
from nodeworker.hypervisor.qemu.disk.disk_use import installed_bytes
from tests.host.disk_node import BLOCK, BLOCKS, Node

DEATHS = {
    "snapshot": ("snapshot.flushed", "snapshot.complete"),
    "destroy": ("destroy.begun", "destroy.killed", "destroy.put_aside", "destroy.network_freed",
                "destroy.files_removed", "collect.unlinked"),
    "delete_snapshot": ("delete.begun", "delete.files_removed", "collect.unlinked"),
}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def step(node, chance):
    """One random operation, after which the model and the host must agree."""
    boxes, snaps = sorted(node.sandboxes), sorted(node.snapshots)
    deed = chance.choice(
        ["create", "fork", "fork", "write", "write", "snapshot", "snapshot", "destroy", "delete"])
    if deed == "create" or not boxes and not snaps:
        node.create()
    elif deed == "fork" and snaps:
        node.create(chance.choice(snaps))
    elif deed == "write" and boxes:
        node.write(chance.choice(boxes), chance.randrange(BLOCKS), chance.randrange(1, 256))
    elif deed == "snapshot" and boxes:
        node.snapshot(chance.choice(boxes))
    elif deed == "destroy" and boxes:
        name = chance.choice(boxes)
        node.driver.destroy(name)
        del node.sandboxes[name]
    elif deed == "delete" and snaps:
        name = chance.choice(snaps)
        node.driver.delete_snapshot(name)
        del node.snapshots[name]


def lose_notes(node, chance):
    """As after a power failure, or an older version: some notes of holders are not there."""
    for path in (node.host.layers.directory / "holders").glob("*/*"):
        if chance.random() < 0.5:
            path.unlink()


def invent_notes(node, chance):
    """As after a crash: notes of holders that are gone, or never came to need the layer."""
    names = [f"sandboxes.{name}" for name in [*node.sandboxes, "gone"]]
    for path in (node.host.layers.directory / "holders").iterdir():
        (path / chance.choice([*names, "snapshots.gone"])).touch()


@pytest.mark.parametrize("spoil", [None, lose_notes, invent_notes])
@pytest.mark.parametrize("seed", range(3))
def test_random_lives_leave_every_disk_whole_and_no_layer_too_many(node, seed, spoil):
    chance = random.Random(seed)
    for _ in range(60):
        step(node, chance)
        node.check_exact()
        if spoil is not None and (node.host.layers.directory / "holders").exists():
            spoil(node, chance)
    for kind in ("sandboxes", "snapshots"):
        for name in getattr(node, kind):
            node.check_content(kind, name)
    for name in node.sandboxes:
        node.driver.destroy(name)
    for name in node.snapshots:
        node.driver.delete_snapshot(name)
    assert node.layers() == set()


@pytest.mark.parametrize(("operation", "point"),
                         [(name, point) for name, points in DEATHS.items() for point in points])
def test_a_worker_killed_while_deleting_takes_nothing_that_is_needed_and_the_next_frees_the_rest(
    node, operation, point
):
    source = node.create()
    node.write(source, 1, 11)
    kept = node.snapshot(source)
    node.write(source, 2, 22)
    doomed = node.snapshot(source)
    node.write(source, 3, 33)
    fork = node.create(kept)
    node.write(fork, 4, 44)
    arguments = {
        "snapshot": (source, "another"), "destroy": (source, ), "delete_snapshot": (doomed, )
    }[operation]
    if operation == "delete_snapshot":
        node.driver.destroy(source)
        del node.sandboxes[source]
    node.die_in(operation, point, *arguments)
    node.check_complete()
    node.check_content("sandboxes", fork)
    node.check_content("snapshots", kept)
    getattr(node.driver, operation)(*arguments)
    if operation == "snapshot":
        node.snapshots["another"] = dict(node.sandboxes[source])
    elif operation == "destroy":
        del node.sandboxes[source]
    else:
        del node.snapshots[doomed]
    node.check_exact()
    for kind in ("sandboxes", "snapshots"):
        for name in getattr(node, kind):
            node.check_content(kind, name)


def test_a_snapshot_deleted_under_a_fork_or_an_export_harms_neither(node, tmp_path):
    source = node.create()
    node.write(source, 1, 11)
    snapshot_id = node.snapshot(source)
    node.driver.destroy(source)
    fork = node.create(snapshot_id)
    node.driver.delete_snapshot(snapshot_id)
    node.sandboxes.pop(source), node.snapshots.pop(snapshot_id)
    node.check_exact()
    node.check_content("sandboxes", fork)
    with pytest.raises(VmNotFound):
        node.driver.export_disk(snapshot_id, tmp_path / "disk")
    with pytest.raises(VmNotFound):
        node.create(snapshot_id)


def test_nothing_is_deleted_while_any_record_cannot_be_read(node, caplog):
    source = node.create()
    node.write(source, 1, 11)
    snapshot_id = node.snapshot(source)
    record = node.host.snapshots / snapshot_id / "snapshot.json"
    whole = record.read_bytes()
    for torn in (b"", whole[:40], b"{}"):
        record.write_bytes(torn)
        node.driver.destroy(source)
        assert len(node.layers()) == 2 and "cannot be read" in caplog.text
        with pytest.raises(DriverError):
            node.driver.disk_use()
    record.write_bytes(whole)
    del node.sandboxes[source]
    node.driver.collect_garbage()
    node.check_exact()
    node.check_content("snapshots", snapshot_id)


def test_a_snapshot_whose_sandbox_is_removed_meanwhile_is_whole_or_not_there(
        node, tmp_path, monkeypatch):
    """A removal waits for no other call: it may take the layers before the snapshot names them."""
    source = node.create()
    node.write(source, 1, 11)
    fault, failures = tmp_path / "fault", []
    fault.write_text("snapshot.flushed sleep:5")
    monkeypatch.setenv("SVC_FAULT_FILE", str(fault))

    def take():
        with pytest.raises(DriverError) as failed:
            node.driver.snapshot(source, "late")
        failures.append(failed)

    taking = threading.Thread(target=take)
    taking.start()
    while not fault.with_name("fault.done").exists() and taking.is_alive():
        time.sleep(0.001)
    node.driver.terminate(source)
    taking.join()
    del node.sandboxes[source]
    assert failures
    node.check_exact()


def test_layers_that_a_shortened_chain_left_behind_are_collected(node):
    source = node.create()
    node.snapshot(source)
    rundir = node.host.rundir(source)
    record = rundir.find_record()
    rundir.write(record, durable=False)
    for name in list(node.snapshots):
        node.driver.delete_snapshot(name)
    chain = record.machine.chain
    rundir.write(replace(record, machine=replace(record.machine, chain=(*chain[:2], chain[-1]))),
                 durable=True)
    node.driver.collect_garbage()
    assert node.layers() == {chain[-1]}


def test_each_layer_counts_once_for_the_eldest_that_needs_it(node):
    source = node.create()
    node.write(source, 0, 1)
    snapshot_id = node.snapshot(source)
    fork = node.create(snapshot_id)
    before = node.driver.disk_use()
    frozen = node.host.layers.path(node.chain("sandboxes", fork)[-2]).stat().st_blocks * 512
    assert frozen >= BLOCK
    assert before.sandboxes[source] > before.sandboxes[fork] + frozen / 2
    total = sum(before.sandboxes.values()) + sum(before.snapshots.values())
    node.driver.destroy(source)
    after = node.driver.disk_use()
    assert set(after.sandboxes) == {fork} and after.sandboxes[fork] == before.sandboxes[fork]
    assert after.snapshots[snapshot_id] >= before.snapshots[snapshot_id] + frozen
    assert sum(after.sandboxes.values()) + sum(after.snapshots.values()) < total
    assert after.node["images"] > 0 and after.node["warm_images"] > 0


def test_what_presets_are_built_of_is_looked_at_once(tmp_path):
    assert installed_bytes(tmp_path / "presets") == 0
    for name in ("one", "two"):
        (tmp_path / "presets" / name / "deep").mkdir(parents=True)
        (tmp_path / "presets" / name / "deep" / "file").write_bytes(bytes(BLOCK))
    first = installed_bytes(tmp_path / "presets")
    assert first == sum(tree_bytes(tmp_path / "presets" / name) for name in ("one", "two"))
    (tmp_path / "presets" / "one" / "deep" / "unseen").write_bytes(bytes(BLOCK))
    assert installed_bytes(tmp_path / "presets") == first
    os.rename(tmp_path / "presets" / "one", tmp_path / "draft")
    assert installed_bytes(tmp_path / "presets") == first - first // 2
    os.rename(tmp_path / "draft", tmp_path / "presets" / "one")
    assert installed_bytes(tmp_path / "presets") == first + BLOCK
