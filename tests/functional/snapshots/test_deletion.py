"""Snapshots are deleted here and in the store, never while anything needs them; on a whole stack,
simulated."""
import contextlib
import dataclasses
import json
import threading
import time
from datetime import timedelta

import psycopg2
import pytest

from models.database import connect, connection, database, now
from models.operations import Operation
from models.snapshots import Snapshot
from models.states import OperationState, SnapshotState
from models.storage import DiskUse, StoreImage
from nodeworker import snapshot_removal
from nodeworker.hypervisor.factory import make_driver
from nodeworker.object_store import ObjectStore
from nodeworker.wiring import NodeDeps
from services.errors import Conflict, NotFound
from services.hosts import storage_use
from services.protocols import Deps
from services.snapshots import deletion, disk_upload, stored_images
from services.snapshots.stored_objects import disk_key, folder, image_key
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue


@pytest.fixture
def rows(sim_stack):
    """The stack's database, as a process of its own sees it."""
    connect(sim_stack.settings.database_url, pool_size=5)
    yield
    database.close_all()


@pytest.fixture
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


@pytest.fixture
def driver(sim_stack):
    return make_driver(sim_stack.settings)


@pytest.fixture
def deps(sim_stack, rows):
    """Use cases on the stack's rows; the stack's own sweep announces what they begin."""
    return Deps(sim_stack.settings, ListQueue(), no_guest)


@pytest.fixture
def sandbox(alice):
    sandbox_id = alice.create()["id"]
    yield sandbox_id
    alice.delete(f"/v1/sandboxes/{sandbox_id}")


def take(alice, sandbox_id, path="snapshot"):
    answer = alice.post(f"/v1/sandboxes/{sandbox_id}/{path}")
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def row(snapshot_id):
    with connection():
        return Snapshot.get_by_id(snapshot_id)


def becomes(probe, wanted=True, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while (found := probe()) != wanted:
        assert time.monotonic() < deadline, f"{found}, wanted {wanted}"
        time.sleep(0.1)


def hasten(snapshot_id):
    """As if the time until the next announcement had passed."""
    with connection():
        Snapshot.update(delete_due_at=now()).where(Snapshot.id == snapshot_id).execute()


def remove(sim_stack, deps, snapshot_id):
    """Delete it, and wait until it is gone for good."""
    deletion.delete(deps, snapshot_id)
    hasten(snapshot_id)
    becomes(lambda: row(snapshot_id).state, SnapshotState.DELETED)


def operator(sim_stack, *arguments):
    return sim_stack.run(f"python -m app.operator {' '.join(arguments)}")


@pytest.mark.parametrize("path", ["snapshot", "filesystem-snapshot"])
def test_an_operator_deletes_a_snapshot_from_its_node_and_the_store(
    alice, sim_stack, deps, store, driver, sandbox, path
):
    taken = take(alice, sandbox, path)
    becomes(lambda: row(taken).uploaded_to_store)
    assert list(store.list_objects(folder(taken)))
    assert (taken in driver.list_snapshots()) is (path == "snapshot")
    assert operator(sim_stack, "snapshot-delete", taken).strip() == "deleting"
    becomes(lambda: row(taken).state, SnapshotState.DELETED)
    assert list(store.list_objects(folder(taken))) == [] and taken not in driver.list_snapshots()
    assert alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}).status_code == 404
    with pytest.raises(NotFound):
        deletion.delete(deps, taken)
    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "running"


def test_a_replay_of_a_fork_is_answered_after_its_snapshot_was_deleted(
        alice, sim_stack, deps, sandbox):
    taken = take(alice, sandbox)
    body = {"snapshotId": taken, "idempotencyKey": "outlives its snapshot"}
    first = alice.post("/v1/sandboxes/fork", json=body).json()
    alice.wait_for(first["id"], "running")
    remove(sim_stack, deps, taken)
    assert alice.post("/v1/sandboxes/fork", json=body).json() == first
    alice.delete(f"/v1/sandboxes/{first['id']}")


def test_a_template_keeps_its_snapshot_until_it_is_taken_back(alice, sim_stack, deps, driver,
                                                              sandbox):
    taken = take(alice, sandbox)
    assert alice.post("/v1/templates/kept/latest", json={"snapshotId": taken}).is_success
    with pytest.raises(Conflict, match="template kept-v1"):
        deletion.delete(deps, taken)
    assert row(taken).state == SnapshotState.READY and taken in driver.list_snapshots()
    assert alice.delete("/v1/templates/kept/latest").is_success
    remove(sim_stack, deps, taken)


def test_a_snapshot_that_a_boot_needs_or_that_is_not_captured_is_kept(
    alice, sim_stack, deps, sandbox
):
    sim_stack.stop("node-ops")
    try:
        taken = []
        capture = threading.Thread(target=lambda: taken.append(take(alice, sandbox)))
        capture.start()
        pending = (Snapshot.source_sandbox_id == sandbox) & (
            Snapshot.state == SnapshotState.PENDING
        )
        with connection():
            becomes(lambda: Snapshot.select().where(pending).count(), 1)
            snapshot_id = Snapshot.get(pending).id
        with pytest.raises(Conflict, match="captured"):
            deletion.delete(deps, snapshot_id)
        sim_stack.start("node-ops")
        capture.join(60)
        sim_stack.stop("node-ops")
        fork = alice.post("/v1/sandboxes/fork", json={"snapshotId": snapshot_id}).json()["id"]
        with pytest.raises(Conflict, match=fork):
            deletion.delete(deps, snapshot_id)
    finally:
        sim_stack.start("node-ops")
    alice.wait_for(fork, "running")
    remove(sim_stack, deps, snapshot_id)
    assert alice.exec(fork, "true")["exitCode"] == 0
    alice.delete(f"/v1/sandboxes/{fork}")


def test_forks_that_race_a_deletion_are_booted_or_refused(alice, sim_stack, deps, sandbox):
    for _ in range(5):
        taken, answers = take(alice, sandbox), []
        racers = [threading.Thread(target=lambda: answers.append(
            alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}))) for _ in range(3)]
        for racer in racers:
            racer.start()
        with contextlib.suppress(Conflict):
            deletion.delete(deps, taken)
        for racer in racers:
            racer.join(60)
        for answer in answers:
            assert answer.status_code in (201, 404), answer.text
            if answer.status_code == 201:
                alice.wait_for(answer.json()["id"], "running")
                alice.delete(f"/v1/sandboxes/{answer.json()['id']}")


@pytest.mark.parametrize(
    "point", ["delete.begun", "delete.files_removed", "delete.here", "delete.objects_removed"])
def test_a_worker_killed_while_deleting_finishes_it_later(alice, deps, store, driver, sandbox,
                                                          fault, point):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    fault(point, "kill")
    deletion.delete(deps, taken)
    hasten(taken)
    becomes(fault.reached)
    hasten(taken)
    becomes(lambda: row(taken).state, SnapshotState.DELETED)
    assert list(store.list_objects(folder(taken))) == [] and taken not in driver.list_snapshots()


@pytest.mark.parametrize("point", ["upload.image_stored", "upload.stored"])
def test_a_snapshot_deleted_while_it_is_uploaded_leaves_nothing_in_the_store(
    alice, sim_stack, deps, store, sandbox, fault, point
):
    fault(point, "sleep:3")
    taken = take(alice, sandbox)
    becomes(fault.reached)
    deletion.delete(deps, taken)
    hasten(taken)
    deadline = time.monotonic() + 40
    while row(taken).state != SnapshotState.DELETED:
        assert time.monotonic() < deadline
        hasten(taken)
        time.sleep(0.5)
    assert list(store.list_objects(folder(taken))) == [] and not row(taken).uploaded_to_store
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        cursor.execute("SELECT type FROM events WHERE body LIKE %s", (f"%{taken}%",))
        assert cursor.fetchall() == [("sandbox.snapshot.recorded",)]


def test_an_upload_whose_files_are_gone_is_given_up_and_an_operator_sees_why(
        alice, sim_stack, rows, driver, sandbox):
    sim_stack.stop("node-bulk")
    try:
        taken = take(alice, sandbox)
        driver.delete_snapshot(taken)
    finally:
        sim_stack.start("node-bulk")
    becomes(lambda: row(taken).upload_error is not None)
    seen = row(taken)
    assert seen.upload_due_at is None and seen.upload_attempts and not seen.uploaded_to_store
    listed = operator(sim_stack, "snapshot-list", sim_stack.people["SVC_ALICE_EMAIL"])
    assert next(line for line in listed.splitlines()
                if taken in line).endswith(f"no snapshot {taken} on this host")
    disk_upload.hasten(sim_stack.settings.node_id)
    assert row(taken).upload_due_at is None


def test_old_snapshots_end_by_themselves_except_those_that_are_needed(
    alice, sim_stack, deps, sandbox
):
    old, kept, young = (take(alice, sandbox) for _ in range(3))
    assert alice.post("/v1/templates/lasting/latest", json={"snapshotId": kept}).is_success
    with connection():
        Snapshot.update(created_at=now() - timedelta(days=8)).where(
            Snapshot.id.in_((old, kept))
        ).execute()
    assert deletion.expire(deps) == 0, "0 days keeps them for ever"
    weekly = dataclasses.replace(deps, settings=dataclasses.replace(deps.settings, snapshot_days=7))
    assert deletion.expire(weekly) == 1
    hasten(old)
    becomes(lambda: row(old).state, SnapshotState.DELETED)
    assert {row(kept).state, row(young).state} == {SnapshotState.READY}
    alice.delete("/v1/templates/lasting/latest")
    assert deletion.expire(weekly) == 1
    hasten(kept)
    becomes(lambda: row(kept).state, SnapshotState.DELETED)


@pytest.fixture
def sweeper(sim_stack, rows, driver):
    """Sweeps the store at once, whatever is to be removed."""
    settings = dataclasses.replace(sim_stack.settings, store_grace_s=0.0, orphan_brake=1000)

    def sweep(**changes):
        host = NodeDeps(dataclasses.replace(settings, **changes), driver, ListQueue(),
                        lambda sandbox: None)
        snapshot_removal.sweep_store(host, ObjectStore(settings))
    return sweep


def test_the_store_is_swept_of_what_no_row_needs(alice, sim_stack, store, sandbox, sweeper,
                                                 tmp_path, caplog):
    kept, archived = take(alice, sandbox), take(alice, sandbox, "filesystem-snapshot")
    becomes(lambda: row(kept).uploaded_to_store)
    sweeper()  # what other tests left
    stray = tmp_path / "stray"
    stray.write_bytes(b"stray")
    strays = {
        disk_key("snapneverwas"), f"{folder('snapgone')}anything", f"{folder(kept)}left-behind",
        f"{folder(archived)}project-99.tar.gz"
    }
    for key in strays:
        store.put_once(key, stray)

    def stored():
        return {each.key for each in store.list_objects("snapshots/")}

    before = stored()
    sweeper(store_grace_s=3600.0)
    assert stored() == before, "younger than the grace period"
    sweeper(orphan_brake=1)
    assert stored() == before and "removing none" in caplog.text
    sweeper()
    assert before - stored() == strays & before and strays <= before
    assert disk_key(kept) in stored() and row(archived).archive_key in stored()


@pytest.fixture
def alone(rows):
    """As if the snapshots of other tests stood on another image."""
    with connection():
        Snapshot.update(image_key="others").where(Snapshot.image_key == "simulated").execute()
    yield
    with connection():
        Snapshot.update(image_key="simulated").where(Snapshot.image_key == "others").execute()


def test_an_image_stays_in_the_store_while_any_snapshot_stands_on_it(
    alice, sim_stack, deps, store, sandbox, alone, sweeper
):
    first, second = take(alice, sandbox), take(alice, sandbox)
    becomes(lambda: row(first).uploaded_to_store and row(second).uploaded_to_store)
    image = image_key(row(first).image_key)
    assert row(second).image_key == row(first).image_key
    remove(sim_stack, deps, first)
    sweeper()
    assert store.find_size(image)
    remove(sim_stack, deps, second)
    sweeper(store_grace_s=3600.0)
    assert store.find_size(image), "used a moment ago"
    sweeper()
    assert store.find_size(image) is None
    with connection():
        assert not StoreImage.select().where(StoreImage.key == "simulated").exists()
    third = take(alice, sandbox)
    becomes(lambda: row(third).uploaded_to_store)
    assert store.find_size(image)


def test_an_upload_never_relies_on_an_image_that_is_going(alice, sim_stack, rows, store, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    with connection():
        StoreImage.create(key="going", removing=True)
    with pytest.raises(stored_images.ImageIsGoing):
        stored_images.rely_on(taken, "going", 1)
    assert stored_images.begin_removals(grace_s=0) == ["going"]
    stored_images.removed("going")
    stored_images.rely_on(taken, "going", 1)
    assert stored_images.begin_removals(grace_s=0) == []
    with connection():
        StoreImage.delete().where(StoreImage.key == "going").execute()
        Snapshot.update(image_key="simulated").where(Snapshot.id == taken).execute()


def test_uploads_from_before_images_were_named_keep_every_image(alice, sim_stack, rows, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    with connection():
        StoreImage.create(key="older", used_at=now() - timedelta(days=9))
        Snapshot.update(image_key=None).where(Snapshot.id == taken).execute()
    assert "older" not in stored_images.begin_removals(grace_s=60)
    with connection():
        Snapshot.update(image_key="simulated").where(Snapshot.id == taken).execute()
    assert "older" in stored_images.begin_removals(grace_s=60)
    stored_images.removed("older")


def test_an_operator_sees_what_each_owner_occupies(alice, bob, sim_stack, deps, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    node_id, email = sim_stack.settings.node_id, sim_stack.people["SVC_ALICE_EMAIL"]
    deps.queue.sent.clear()
    sim_stack.run(f"celery -A tasks.celery_app call node.disk.sample --queue node.{node_id}.bulk")

    def sampled():
        with connection():
            return DiskUse.select().where(DiskUse.resource_id.in_((sandbox, taken))).count()

    becomes(sampled, 2)
    told = json.loads(operator(sim_stack, "disk-usage", "--json"))
    owner = next(each for each in told["owners"] if each["email"] == email)
    items = json.loads(operator(sim_stack, "disk-usage", email, "--json"))
    mine = {each["id"]: each for each in items}
    assert mine[sandbox]["size_bytes"] > 0 and mine[taken]["store_bytes"] == row(
        taken).tarball_size_bytes
    assert owner["total_bytes"] == sum(each["size_bytes"] + each["store_bytes"] for each in items)
    assert [each["total_bytes"] for each in told["owners"]] == sorted(
        (each["total_bytes"] for each in told["owners"]), reverse=True)
    assert told["nodes"][0]["node_id"] == node_id and told["store_images"]["simulated"] > 0
    shown = operator(sim_stack, "disk-usage").splitlines()
    assert shown[0].split() == ["owner", "sandboxes", "snapshots", "store", "total"]
    assert any(line.startswith(email)
               for line in shown) and any(line.startswith(f"node {node_id}: ") for line in shown)
    assert any(sandbox in line for line in operator(sim_stack, "disk-usage", email).splitlines())


def test_a_sample_replaces_the_one_before(rows):
    storage_use.record("elsewhere", {"a": 1, "b": 2}, {"s": 3}, {"images": 4})
    storage_use.record("elsewhere", {"b": 5}, {}, {"images": 4})
    with connection():
        left = {(each.kind, each.resource_id): each.size_bytes
                for each in DiskUse.select().where(DiskUse.node_id == "elsewhere")}
        DiskUse.delete().where(DiskUse.node_id == "elsewhere").execute()
    assert left == {("sandbox", "b"): 5, ("node", "images"): 4, ("node", storage_use.SAMPLED): 0}


def test_nothing_open_is_left_for_deleted_snapshots(rows):
    with connection():
        stuck = Snapshot.select().join(Operation, on=(Operation.snapshot_id == Snapshot.id)).where(
            Snapshot.state.in_((SnapshotState.DELETING, SnapshotState.DELETED))
            & Operation.state.in_((OperationState.PENDING, OperationState.RUNNING,
                                   OperationState.WAITING)))
        assert list(stuck) == []
