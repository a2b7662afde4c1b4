"""Snapshots reach the object store, and only then the row says so, on a whole stack with the
simulated driver."""
import contextlib
import dataclasses
import hashlib
import json
import time

import psycopg2
import pytest

from config.settings import load
from objects.store import ObjectStore, StoreUnavailable
from services.snapshots import disk_upload
from services.snapshots.stored_objects import disk_key


@pytest.fixture
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


def uploaded(alice, sandbox_id, key):
    """The snapshot taken under `key`, as it is now."""
    return alice.post(f"/v1/sandboxes/{sandbox_id}/snapshot", json={"idempotencyKey": key}).json()


def wait_uploaded(alice, sandbox_id, key, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not (snapshot := uploaded(alice, sandbox_id, key))["uploadedToStore"]:
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.2)
    return snapshot


def test_a_snapshot_is_uploaded_and_says_how_large(alice, sandbox, store):
    taken = uploaded(alice, sandbox, "upload")
    assert taken["sizeBytes"] > 0
    snapshot = wait_uploaded(alice, sandbox, "upload")
    assert store.find_size(disk_key(snapshot["id"])) == snapshot["tarballSizeBytes"] > 0
    assert snapshot["rootfsSha"] == sha_of(store, snapshot)


def sha_of(store, snapshot):
    return hashlib.sha256(b"".join(store.get_stream(disk_key(snapshot["id"])))).hexdigest()


def test_the_digest_is_of_what_is_stored_whichever_attempt_stored_it(
        alice, sim_stack, rows, sandbox, store, fault):
    fault("upload.stored", "sleep:60")
    taken = uploaded(alice, sandbox, "digest")
    assert taken["rootfsSha"] == "" and taken["uploadedToStore"] is False
    until = time.monotonic() + 60
    while not fault.reached():
        assert time.monotonic() < until
        time.sleep(0.1)
    # As if the first attempt had exported other bytes of the same length; then it dies.
    size = store.find_size(disk_key(taken["id"]))
    store.put_stream(disk_key(taken["id"]), [b"x" * size])
    sim_stack.kill("node-bulk")
    disk_upload.UPLOADS.make_due(sim_stack.settings.node_id)
    snapshot = wait_uploaded(alice, sandbox, "digest", timeout_s=90)
    assert snapshot["rootfsSha"] == sha_of(store, snapshot) == hashlib.sha256(
        b"x" * size).hexdigest()


@pytest.mark.parametrize("size_bytes", [1, 9 << 20], ids=["in one part", "in several"])
def test_a_store_that_refuses_is_unavailable(sim_stack, tmp_path, size_bytes):
    """As when its bucket was removed: the upload is tried again later, and operators see why."""
    path = tmp_path / "disk"
    path.write_bytes(bytes(size_bytes))
    store = ObjectStore(dataclasses.replace(sim_stack.settings, s3_bucket="none"))
    for put in (lambda: store.put_once("disk", path),
                lambda: store.put_stream("disk", [path.read_bytes()])):
        with pytest.raises(StoreUnavailable, match="cannot store disk"):
            put()


def test_receivers_are_told_of_the_upload(alice, sim_stack, sandbox):
    snapshot = wait_uploaded(alice, sandbox, "told")
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        about = f"%{snapshot['id']}%"
        cursor.execute("SELECT type, body FROM events WHERE body LIKE %s ORDER BY occurred_at",
                       (about, ))
        told = cursor.fetchall()
    assert [kind for kind, _ in told] == ["sandbox.snapshot.recorded", "sandbox.snapshot.uploaded"]
    assert json.loads(told[1][1])["data"]["tarballSizeBytes"] == snapshot["tarballSizeBytes"]


@pytest.mark.slow
def test_a_store_that_is_away_delays_the_upload_and_nothing_else(alice, sim_stack, sandbox, store):
    sim_stack.crash("s3")
    try:
        taken = uploaded(alice, sandbox, "away")
        assert taken["uploadedToStore"] is False
        assert alice.exec(sandbox, "true")["exitCode"] == 0
        with pytest.raises(StoreUnavailable):
            store.find_size(disk_key(taken["id"]))
    finally:
        sim_stack.start("s3")
    wait_uploaded(alice, sandbox, "away", timeout_s=90)


def test_a_worker_killed_in_the_middle_does_not_lose_the_upload(alice, sim_stack, sandbox):
    sim_stack.crash("node-bulk")
    try:
        assert uploaded(alice, sandbox, "killed")["uploadedToStore"] is False
    finally:
        sim_stack.start("node-bulk")
    wait_uploaded(alice, sandbox, "killed", timeout_s=90)


def test_transient_captures_are_not_uploaded(alice, sim_stack, sandbox, store):
    fork = alice.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["id"]
    alice.wait_for(fork, "running")
    alice.delete(f"/v1/sandboxes/{fork}")
    wait_uploaded(alice, sandbox, "after the fork")
    listed = store._client.list_objects_v2(Bucket=sim_stack.settings.s3_bucket, Prefix="snapshots/")
    kept = {entry["Key"] for entry in listed.get("Contents", [])}
    assert disk_key(uploaded(alice, sandbox, "after the fork")["id"]) in kept
    assert not any(fork in key for key in kept)


def test_wrong_credentials_are_refused(sim_stack):
    stranger = load({**sim_stack.site.values, "SVC_S3_SECRET_KEY": "wrong"})
    with pytest.raises(StoreUnavailable):
        ObjectStore(stranger).find_size("anything")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["upload.image_stored", "upload.stored"])
def test_an_outage_of_postgres_delays_the_upload_by_seconds(alice, sim_stack, sandbox, fault,
                                                            point):
    fault(point, "sleep:1")
    uploaded(alice, sandbox, f"outage {point}")
    deadline = time.monotonic() + 30
    while not fault.reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sim_stack.crash("postgres")
    try:
        time.sleep(2)
    finally:
        sim_stack.start("postgres")
    deadline = time.monotonic() + 60
    while alice.get(f"/v1/sandboxes/{sandbox}").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    wait_uploaded(alice, sandbox, f"outage {point}", timeout_s=60)
