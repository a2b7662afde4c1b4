"""Snapshots are deleted here and in the store, never while anything needs them; on a whole stack,
simulated."""
import contextlib
import dataclasses
import threading
import time
from datetime import timedelta

import psycopg2
import pytest

from models.database import connection, now
from models.operations import IdempotencyKey, Operation
from models.snapshots import Snapshot
from models.states import OperationState, SnapshotState
from services.errors import Conflict, NotFound
from services.operations import idempotency
from services.snapshots import deletion, disk_upload
from services.snapshots.stored_objects import folder
from tests.rows.snapshots import make_due, operator, remove, row, take
from tests.stack.waiting import becomes


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


def test_an_owner_removes_a_snapshot_and_what_was_made_from_it_goes_on(
        alice, rows, store, driver, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    fork = alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}).json()["id"]
    alice.wait_for(fork, "running")
    assert alice.get(f"/v1/snapshots/{taken}").json()["uploadedToStore"] is True
    assert taken in alice.get("/v1/snapshots").text
    assert alice.delete(f"/v1/snapshots/{taken}").status_code == 200
    make_due(taken)
    becomes(lambda: row(taken).state, SnapshotState.DELETED)
    assert taken not in driver.list_snapshots()
    for path in ("hibernate", "wake"):
        assert alice.post(f"/v1/sandboxes/{fork}/{path}").status_code == 200
    assert alice.exec(fork, "true")["exitCode"] == 0
    alice.delete(f"/v1/sandboxes/{fork}")


def test_a_replay_of_a_fork_is_answered_after_its_snapshot_was_deleted(
        alice, sim_stack, deps, sandbox):
    taken = take(alice, sandbox)
    body = {"snapshotId": taken, "idempotencyKey": "outlives its snapshot"}
    first = alice.post("/v1/sandboxes/fork", json=body).json()
    alice.wait_for(first["id"], "running")
    remove(sim_stack, deps, taken)
    assert alice.post("/v1/sandboxes/fork", json=body).json() == first
    alice.delete(f"/v1/sandboxes/{first['id']}")


def test_a_template_keeps_its_snapshot_until_its_version_is_removed(
        alice, sim_stack, deps, driver, sandbox):
    taken = take(alice, sandbox)
    assert alice.post("/v1/templates/kept/latest", json={"snapshotId": taken}).is_success
    with pytest.raises(Conflict, match="template kept-v1"):
        deletion.delete(deps, taken)
    assert row(taken).state == SnapshotState.READY and taken in driver.list_snapshots()
    assert alice.delete("/v1/templates/kept/latest").is_success
    with pytest.raises(Conflict, match="template kept-v1"):
        deletion.delete(deps, taken)
    assert alice.get("/v1/templates/kept-v1/latest").json()["snapshotId"] == taken
    email = sim_stack.people["SVC_ALICE_EMAIL"]
    assert "kept-v1" in operator(sim_stack, "template-list", email, "--unused")
    assert taken in operator(sim_stack, "template-remove", "kept-v1", email)
    remove(sim_stack, deps, taken)


def test_a_snapshot_that_a_boot_needs_or_that_is_not_captured_is_kept(
    alice, sim_stack, deps, sandbox
):
    sim_stack.crash("node-ops")
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
        sim_stack.crash("node-ops")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["delete.begun", "delete.files_removed", "delete.here", "delete.objects_removed"])
def test_a_worker_killed_while_deleting_finishes_it_later(alice, deps, store, driver, sandbox,
                                                          fault, point):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    fault(point, "kill")
    deletion.delete(deps, taken)
    make_due(taken)
    becomes(fault.reached)
    make_due(taken)
    becomes(lambda: row(taken).state, SnapshotState.DELETED)
    assert list(store.list_objects(folder(taken))) == [] and taken not in driver.list_snapshots()


@pytest.mark.parametrize("point", ["upload.image_stored", "upload.stored"])
@pytest.mark.slow
def test_a_snapshot_deleted_while_it_is_uploaded_leaves_nothing_in_the_store(
    alice, sim_stack, deps, store, sandbox, fault, point
):
    fault(point, "sleep:3")
    taken = take(alice, sandbox)
    becomes(fault.reached)
    deletion.delete(deps, taken)
    make_due(taken)
    deadline = time.monotonic() + 40
    while row(taken).state != SnapshotState.DELETED:
        assert time.monotonic() < deadline
        make_due(taken)
        time.sleep(0.5)
    assert list(store.list_objects(folder(taken))) == [] and not row(taken).uploaded_to_store
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        cursor.execute("SELECT type FROM events WHERE body LIKE %s", (f"%{taken}%",))
        assert cursor.fetchall() == [("sandbox.snapshot.recorded",)]


def test_an_upload_whose_files_are_gone_is_given_up_and_an_operator_sees_why(
        alice, sim_stack, rows, driver, sandbox):
    sim_stack.crash("node-bulk")
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
    disk_upload.UPLOADS.make_due(sim_stack.settings.node_id)
    assert row(taken).upload_due_at is None


def test_old_snapshots_end_by_themselves_except_those_that_are_needed(
    alice, sim_stack, deps, sandbox
):
    old, kept, young = (take(alice, sandbox) for _ in range(3))
    for taken in (old, kept, young):
        # Whoever writes an upload down holds the row's lock, and `expire` leaves locked rows to the
        # next time.
        becomes(lambda taken=taken: row(taken).uploaded_to_store)
    assert alice.post("/v1/templates/lasting/latest", json={"snapshotId": kept}).is_success
    with connection():
        Snapshot.update(created_at=now() - timedelta(days=8)).where(
            Snapshot.id.in_((old, kept))
        ).execute()
    assert deletion.expire(deps) == 0, "0 days keeps them for ever"
    weekly = dataclasses.replace(deps, settings=dataclasses.replace(deps.settings, snapshot_days=7))
    assert deletion.expire(weekly) == 1
    make_due(old)
    becomes(lambda: row(old).state, SnapshotState.DELETED)
    assert {row(kept).state, row(young).state} == {SnapshotState.READY}
    alice.delete("/v1/templates/lasting/latest")
    operator(sim_stack, "template-remove", "lasting-v1", sim_stack.people["SVC_ALICE_EMAIL"])
    assert deletion.expire(weekly) == 1
    make_due(kept)
    becomes(lambda: row(kept).state, SnapshotState.DELETED)


def test_nothing_open_is_left_for_deleted_snapshots(rows):
    with connection():
        stuck = Snapshot.select().join(Operation, on=(Operation.snapshot_id == Snapshot.id)).where(
            Snapshot.state.in_((SnapshotState.DELETING, SnapshotState.DELETED))
            & Operation.state.in_((OperationState.PENDING, OperationState.RUNNING,
                                   OperationState.WAITING)))
        assert list(stuck) == []


def test_the_key_of_a_snapshot_lives_as_long_as_the_snapshot(alice, rows, sandbox):
    def again():
        return alice.post(f"/v1/sandboxes/{sandbox}/snapshot",
                          json={"idempotencyKey": "for good"}).json()["id"]

    def a_day_later():
        with connection():
            aged = IdempotencyKey.update(expires_at=now()).where(
                IdempotencyKey.resource_id == taken).execute()
        idempotency.forget_expired()
        return aged

    taken = again()
    assert a_day_later() == 1 and again() == taken
    alice.delete(f"/v1/snapshots/{taken}")
    assert a_day_later() == 1 and again() != taken
