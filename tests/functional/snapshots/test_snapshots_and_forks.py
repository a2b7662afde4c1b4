"""Snapshot and both forks through every process, with simulated guests."""
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

SNAPSHOT = {
    "id", "nodeId", "kind", "rootfsSha", "sizeBytes", "tarballSizeBytes", "sourceSandboxId",
    "uploadedToStore", "createdAt"
}
SANDBOX = {"id", "status", "cwd", "vmIP", "portMap", "createdAt", "preferredModel", "nodeId"}


@pytest.fixture
def source(alice):
    made = alice.create(ports=[3000], env={"FROM": "source"})["id"]
    content = "bmV2ZXIgbG9zdA=="
    alice.post(f"/v1/sandboxes/{made}/files",
               json=[{"path": "/kept", "content": content, "mode": 420}])
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture
def forks(alice):
    """Ids of sandboxes to delete afterwards."""
    made = []
    yield made
    for sandbox in made:
        alice.delete(f"/v1/sandboxes/{sandbox}")


def post(persona, path, **body):
    return persona.post(f"/v1/sandboxes/{path}", json=body)


def kept(alice, sandbox):
    return alice.get(f"/v1/sandboxes/{sandbox}/files",
                     params={"path": "/kept"}).json().get("content")


def test_a_snapshot_leaves_its_source_running(alice, source):
    answer = post(alice, f"{source}/snapshot")
    assert answer.status_code == 201 and answer.json().keys() == SNAPSHOT
    assert answer.json()["kind"] == "user_project" and answer.json()["sourceSandboxId"] == source
    assert alice.get(f"/v1/sandboxes/{source}").json()["status"] == "running"
    assert alice.exec(source, "true")["exitCode"] == 0


def test_a_sleeping_sandbox_can_be_captured_and_sleeps_on(alice, source):
    post(alice, f"{source}/hibernate")
    assert post(alice, f"{source}/snapshot", restoreKind="full_rootfs").status_code == 201
    assert alice.get(f"/v1/sandboxes/{source}").json()["status"] == "hibernated"


def captured(answer):
    """What a snapshot is from its capture on; its upload goes on beside the test."""
    return {
        name: value
        for name, value in answer.json().items()
        if name not in ("uploadedToStore", "tarballSizeBytes", "rootfsSha")
    }


def test_a_key_names_one_snapshot_per_sandbox(alice, source):
    first = captured(post(alice, f"{source}/snapshot", idempotencyKey="k"))
    with ThreadPoolExecutor(6) as pool:
        again = list(
            pool.map(lambda _: post(alice, f"{source}/snapshot", idempotencyKey="k"), range(6)))
    assert all(answer.status_code == 201 and captured(answer) == first for answer in again)
    assert post(alice, f"{source}/snapshot", idempotencyKey="other").json()["id"] != first["id"]
    alice.delete(f"/v1/sandboxes/{source}")
    assert captured(post(alice, f"{source}/snapshot", idempotencyKey="k")) == first


def test_racing_first_requests_make_one_snapshot(alice, source):
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda _: post(alice, f"{source}/snapshot", idempotencyKey="race"), range(6)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize("asleep", [False, True])
def test_a_fork_of_a_sandbox_has_its_files_and_leaves_it_alone(alice, source, forks, asleep):
    if asleep:
        post(alice, f"{source}/hibernate")
    before = alice.get(f"/v1/sandboxes/{source}").json()
    answer = post(alice, f"{source}/fork", ports=[4000], preferredModel="m")
    assert answer.status_code == 201 and answer.json().keys() == SANDBOX
    fork = answer.json()["id"]
    forks.append(fork)
    running = alice.wait_for(fork, "running")
    assert list(running["portMap"].values()) == [4000] and running["preferredModel"] == "m"
    assert kept(alice, fork) is not None
    assert "FROM=source" in alice.exec(fork, "env")["stdout"]
    assert alice.get(f"/v1/sandboxes/{source}").json() == before


def test_a_fork_of_a_snapshot_outlives_its_source(alice, source, forks):
    snapshot = post(alice, f"{source}/snapshot").json()["id"]
    alice.delete(f"/v1/sandboxes/{source}")
    answer = post(alice, "fork", snapshotId=snapshot, sessionId="s", projectId="p",
                  projectSlug="slug", appId="a")
    assert answer.status_code == 201
    forks.append(answer.json()["id"])
    alice.wait_for(forks[0], "running")
    assert kept(alice, forks[0]) is not None
    entries = {
        entry["id"]: entry for entry in alice.get("/v1/sandboxes?limit=500").json()["sandboxes"]
    }
    entry = entries[forks[0]]
    assert (entry["projectId"], entry["project"], entry["appId"]) == ("p", "slug", "a")
    assert entry["slug"] == "slug"


def test_replays_of_a_snapshot_fork_make_one_sandbox(alice, source, forks):
    body = {
        "snapshotId": post(alice, f"{source}/snapshot").json()["id"],
        "idempotencyKey": f"k{time.time_ns()}"
    }
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(alice, "fork", **body), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    forks.extend({answer.json()["id"] for answer in answers})
    assert len(forks) == 1
    assert post(alice, "fork", **body, ports=[3000]).status_code == 409


@pytest.mark.parametrize(("body", "status"), [
    ({"startCommand": "serve"}, 400),
    ({"startCommand": "serve", "readinessPort": 3000}, 400),
    ({"startCommand": "serve", "readinessPort": 3000, "ports": [4000]}, 400),
    ({"ports": [1024]}, 400),
    ({"snapshotId": "x"}, 400),
    ({"size": "small"}, 400),
])
def test_a_bad_fork_is_400(alice, source, body, status):
    assert post(alice, f"{source}/fork", **body).status_code == status


def test_a_strangers_snapshot_cannot_be_forked(alice, mallory, source):
    snapshot = post(alice, f"{source}/snapshot").json()["id"]
    assert post(mallory, "fork", snapshotId=snapshot).status_code == 403
    assert post(mallory, f"{source}/fork").status_code == 403
    assert post(alice, "fork", snapshotId="unknown").status_code == 404
    assert post(alice, "fork").status_code == 400
