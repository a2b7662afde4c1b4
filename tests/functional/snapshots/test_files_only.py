"""`files_only` snapshots: the project directory as an archive in the store, and copies of it;
simulated guests."""
import base64
import contextlib
import gzip
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from nodeworker.faults import FAULT_POINTS
from objects.store import ObjectMissing, ObjectStore
from services.snapshots.stored_objects import archive_key, folder
from tests.functional.snapshots.test_snapshots_and_forks import SNAPSHOT
from tests.stack.waiting import until

ROUTES = {"filesystem-snapshot": {}, "tarball": {}, "snapshot": {"restoreKind": "project_only"}}
CONTENT = {
    "/home/user/app/main.py": b"print('hello')\n",
    "/home/user/name with\nnewline": b"\0\1\2" * 1000,
    "/home/user/bl\u00e4tter.txt": "\u00fcber".encode()
}
OUTSIDE = "/srv/elsewhere"


@pytest.fixture
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


@pytest.fixture
def source(alice):
    made = alice.create(env={"FROM": "source"})["id"]
    write(alice, made, {**CONTENT, OUTSIDE: b"not of the project"})
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture
def fork(alice):
    """Forks a snapshot; what was made is deleted afterwards."""
    made = []

    def start(snapshot_id, **body):
        answer = alice.post("/v1/sandboxes/fork", json={"snapshotId": snapshot_id, **body})
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
        return made[-1]

    yield start
    for sandbox in made:
        alice.delete(f"/v1/sandboxes/{sandbox}")


def write(persona, sandbox, files):
    items = [{"path": path, "content": base64.b64encode(content).decode()}
             for path, content in files.items()]
    assert persona.post(f"/v1/sandboxes/{sandbox}/files", json=items).status_code == 204


def read(persona, sandbox, path):
    answer = persona.get(f"/v1/sandboxes/{sandbox}/files", params={"path": path})
    return base64.b64decode(answer.json()["content"]) if answer.status_code == 200 else None


def archive(persona, sandbox, route="filesystem-snapshot", **body):
    return persona.post(f"/v1/sandboxes/{sandbox}/{route}", json={**ROUTES[route], **body})


def objects(store, snapshot_id):
    """Keys of the archives that the store has of a snapshot; of all of them for an empty id."""
    prefix = folder(snapshot_id) if snapshot_id else "snapshots/"
    listed = store._client.list_objects_v2(Bucket=store._bucket, Prefix=prefix)
    return [
        entry["Key"] for entry in listed.get("Contents", []) if entry["Key"].endswith(".tar.gz")
    ]


def halves(store):
    """Keys of what is half-stored."""
    return [upload["Key"] for upload in store.list_uploads("snapshots/")]


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_stores_the_project_and_nothing_else(alice, source, store, fork, route):
    answer = archive(alice, source, route)
    taken = answer.json()
    assert answer.status_code == 201 and taken.keys() == SNAPSHOT
    assert (taken["kind"], taken["sourceSandboxId"], taken["uploadedToStore"]) == (
        "files_only",
        source, True,
    )
    (key,) = objects(store, taken["id"])
    assert store.find_size(key) == taken["tarballSizeBytes"] > 0
    tar = gzip.decompress(b"".join(store.get_stream(key)))
    assert (hashlib.sha256(tar).hexdigest(), len(tar)) == (taken["rootfsSha"], taken["sizeBytes"])
    assert alice.get(f"/v1/sandboxes/{source}").json()["status"] == "running"
    copy = fork(taken["id"])
    alice.wait_for(copy, "running")
    assert {path: read(alice, copy, path) for path in CONTENT} == CONTENT
    assert read(alice, copy, OUTSIDE) is None
    assert alice.exec(copy, "cat", "/etc/hostname")["stdout"].strip() == copy


def test_a_copy_outlives_its_source_and_starts_what_it_is_told(alice, source, fork):
    taken = archive(alice, source).json()["id"]
    alice.delete(f"/v1/sandboxes/{source}")
    copy = fork(taken, ports=[4000], projectId="p", preferredModel="m")
    running = alice.wait_for(copy, "running")
    assert list(running["portMap"].values()) == [4000] and running["preferredModel"] == "m"
    assert "FROM=source" in alice.exec(copy, "env")["stdout"]
    assert {path: read(alice, copy, path) for path in CONTENT} == CONTENT


def test_it_can_be_published_and_made_into_machines_of_another_size(alice, source, fork):
    taken = archive(alice, source).json()["id"]
    assert alice.post("/v1/templates/project/latest",
                      json={"snapshotId": taken}).status_code in (200, 201)
    made = alice.create(templateId="project", size="medium")["id"]
    try:
        assert {path: read(alice, made, path) for path in CONTENT} == CONTENT
        entries = alice.get("/v1/sandboxes?limit=500").json()["sandboxes"]
        assert [entry["memMb"] for entry in entries if entry["id"] == made] == [2048]
    finally:
        alice.delete(f"/v1/sandboxes/{made}")
        alice.delete("/v1/templates/project/latest")


def test_a_key_names_one_snapshot_whatever_the_route(alice, source):
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda route: archive(alice, source, route, idempotencyKey="k"),
                     [*ROUTES] * 2))
    assert {answer.status_code for answer in answers} == {201}
    (first,) = {answer.text for answer in answers}
    full = alice.post(f"/v1/sandboxes/{source}/snapshot", json={"idempotencyKey": "k"})
    assert full.status_code == 409 and "different request" in full.json()["error"]
    alice.delete(f"/v1/sandboxes/{source}")
    assert archive(alice, source, "tarball", idempotencyKey="k").text == first
    assert archive(alice, source, "tarball", idempotencyKey="another").status_code == 409


def test_a_sleeping_sandbox_is_409_and_says_so(alice, source):
    alice.post(f"/v1/sandboxes/{source}/hibernate")
    for route in ROUTES:
        answer = archive(alice, source, route)
        assert answer.status_code == 409 and "hibernated" in answer.json()["error"]


def test_a_strangers_project_is_403(alice, mallory, source):
    taken = archive(alice, source).json()["id"]
    assert {archive(mallory, source, route).status_code for route in ROUTES} == {403}
    assert mallory.post("/v1/sandboxes/fork", json={"snapshotId": taken}).status_code == 403
    assert archive(alice, "unknown").status_code == 404


def test_a_bad_body_is_400(alice, source):
    answer = archive(alice, source, path="/etc")
    assert answer.status_code == 400 and "path" in answer.json()["error"]


def test_receivers_are_told_that_it_is_recorded_and_uploaded(alice, sim_stack, source):
    taken = archive(alice, source).json()
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        cursor.execute("SELECT type, body FROM events WHERE body LIKE %s ORDER BY occurred_at",
                       (f"%{taken['id']}%", ))
        told = cursor.fetchall()
    assert [kind for kind, _ in told] == ["sandbox.snapshot.recorded", "sandbox.snapshot.uploaded"]
    for _, body in told:
        data = json.loads(body)["data"]
        assert {
            name: data[name] for name in ("kind", "rootfsSha", "sizeBytes", "tarballSizeBytes")
        } == {name: taken[name] for name in ("kind", "rootfsSha", "sizeBytes", "tarballSizeBytes")}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["archive.begun", "archive.stored"])
def test_the_sandbox_works_on_meanwhile_and_a_delete_ends_it(alice, source, store, fault, point):
    before = set(objects(store, ""))
    fault(point, "sleep:3")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(archive, alice, source)
        until(fault.reached)
        assert alice.exec(source, "true")["exitCode"] == 0
        write(alice, source, {"/home/user/late": b"x"})
        assert alice.post(f"/v1/sandboxes/{source}/wake").json()["status"] == "running"
        assert not pending.done()
        assert (set(objects(store, "")) > before) is (point == "archive.stored")
        assert alice.delete(f"/v1/sandboxes/{source}").json()["status"] == "stopped"
        answer = pending.result()
    assert answer.status_code == 409 and "deleted" in answer.json()["error"]
    until(lambda: set(objects(store, "")) <= before)


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in FAULT_POINTS if point.startswith("archive.")])
def test_a_worker_that_dies_on_the_way_out_is_replaced(alice, source, store, fork, fault, point):
    fault(point, "kill")
    taken = archive(alice, source)
    assert taken.status_code == 201 and fault.reached()
    assert len(objects(store, taken.json()["id"])) == 1, "what the first attempt stored is gone"
    copy = fork(taken.json()["id"])
    alice.wait_for(copy, "running")
    assert {path: read(alice, copy, path) for path in CONTENT} == CONTENT


@pytest.mark.slow
@pytest.mark.parametrize("point",
                         [point for point in FAULT_POINTS if point.startswith("unarchive.")])
def test_a_worker_that_dies_on_the_way_in_is_replaced(alice, source, fork, fault, point):
    taken = archive(alice, source).json()["id"]
    fault(point, "kill")
    copy = fork(taken)
    alice.wait_for(copy, "running")
    assert fault.reached() and {path: read(alice, copy, path) for path in CONTENT} == CONTENT


@pytest.mark.slow
def test_a_store_that_is_away_is_503_and_its_return_mends_it(alice, sim_stack, source, fork):
    taken = archive(alice, source).json()["id"]
    sim_stack.crash("s3")
    try:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(archive, alice, source, idempotencyKey="away")
            copy = fork(taken)
            until(lambda: alice.get(f"/v1/sandboxes/{copy}").json()["status"] == "stopped")
            assert "object store" in alice.get(f"/v1/sandboxes/{copy}").json()["error"]
            failed = pending.result()
        assert failed.status_code == 503 and "object store" in failed.json()["error"]
        assert alice.exec(source, "true")["exitCode"] == 0
    finally:
        sim_stack.start("s3")
    assert archive(alice, source, idempotencyKey="away").status_code == 201
    alice.wait_for(fork(taken), "running")


def test_what_a_dead_worker_left_half_stored_of_a_deleted_sandbox_is_removed(
        alice, sim_stack, source, store, fault):
    before = set(halves(store))
    fault("archive.begun", "sleep:30")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(archive, alice, source)
        until(fault.reached)
        with contextlib.closing(
            psycopg2.connect(sim_stack.settings.database_url)
        ) as link, link.cursor() as cursor:
            cursor.execute("SELECT id FROM snapshots WHERE source_sandbox_id = %s", (source,))
            (snapshot_id,) = cursor.fetchone()
        store._client.create_multipart_upload(Bucket=store._bucket, Key=archive_key(snapshot_id, 1))
        assert set(halves(store)) - before
        sim_stack.crash("node-archive")
        alice.delete(f"/v1/sandboxes/{source}")
        assert pending.result().status_code == 409
    sim_stack.start("node-archive")
    until(lambda: set(halves(store)) <= before)


@pytest.mark.parametrize("damage", ["another content", "cut short", "gone"])
def test_a_damaged_archive_never_runs(alice, source, store, fork, damage):
    taken = archive(alice, source).json()["id"]
    (key,) = objects(store, taken)
    content = b"".join(store.get_stream(key))
    store.remove_all(key)
    if damage == "another content":
        store.put_stream(key, [gzip.compress(gzip.decompress(content).replace(b"hello", b"HELLO"))])
    elif damage == "cut short":
        store.put_stream(key, [content[:-20]])
    copy = fork(taken)
    until(lambda: alice.get(f"/v1/sandboxes/{copy}").json()["status"] == "stopped")
    assert "damaged" in alice.get(f"/v1/sandboxes/{copy}").json()["error"]


def test_a_stream_that_breaks_leaves_no_part_of_an_object(store):
    def broken():
        yield bytes(20 * 1024 * 1024)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        store.put_stream("snapshots/broken/one", broken())
    assert objects(store, "broken") == [] and store.list_uploads("snapshots/broken/") == []
    with pytest.raises(ObjectMissing):
        list(store.get_stream("snapshots/broken/one"))
