"""What a `files_only` snapshot does to the rows: its lane, its wait and its replay; a node where
its copy may go.

No node works here: the test claims and finishes operations itself.
"""
from datetime import timedelta

import pytest

from models.database import connection, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationState, SandboxStatus, SnapshotState
from services.hosts import nodes
from services.hosts.nodes import NodeFacts
from services.operations import announcements, claims
from services.sandboxes.outcomes import Outcome, finish
from tests.stack.edge import NODE, make_edge

SANDBOXES = "/v1/sandboxes"
STORED = {"state": SnapshotState.READY, "archive_key": "k", "rootfs_sha": "ab", "size_bytes": 30,
          "tarball_size_bytes": 7, "uploaded_to_store": True}


@pytest.fixture
def edge(postgres_url, redis_url, tmp_path):
    yield from make_edge(postgres_url, redis_url, tmp_path, archive_wait_s=0.2,
                         operation_wait_s=0.2)


@pytest.fixture
def source(edge, owner):
    """A running sandbox on n1."""
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(owner)).json["id"]
    work_on(made, Outcome(True, SandboxStatus.RUNNING))
    return made


def work_on(sandbox_id, outcome):
    """Do what a node does: take the sandbox's operation and finish it."""
    with connection():
        claimed = claims.claim(sandbox_id, Sandbox.get_by_id(sandbox_id).op_seq, "n1/any", 10.0)
        finish(claimed, outcome)


def post(edge, owner, path, headers=None, **body):
    return edge.api.post(f"{SANDBOXES}/{path}", json=body,
                         headers=edge.key(owner) | (headers or {}))


def archived(edge, owner, source):
    """A finished archive of `source`; its id."""
    post(edge, owner, f"{source}/tarball", idempotencyKey="made")
    work_on(source, Outcome(True, SandboxStatus.RUNNING, snapshot=STORED))
    return post(edge, owner, f"{source}/tarball", idempotencyKey="made").json["id"]


def queue_of(sandbox_id):
    """The queue in which the open operation of a sandbox is announced."""
    with connection():
        return announcements.queue_of(Operation.get(
            (Operation.sandbox_id == sandbox_id) & (Operation.state == OperationState.PENDING)))


def test_one_that_takes_long_goes_on_and_its_key_gives_it_later(edge, owner, source):
    late = post(edge, owner, f"{source}/filesystem-snapshot", idempotencyKey="k")
    assert late.status_code == 503 and int(late.headers["Retry-After"]) > 0
    assert "still being taken" in late.json["error"]
    assert post(edge, owner, f"{source}/filesystem-snapshot", idempotencyKey="k").status_code == 503
    with connection():
        assert Snapshot.select().where(Snapshot.source_sandbox_id == source).count() == 1
    work_on(source, Outcome(True, SandboxStatus.RUNNING, snapshot=STORED))
    taken = post(edge, owner, f"{source}/filesystem-snapshot", idempotencyKey="k")
    assert taken.status_code == 201 and taken.json["id"] in late.json["error"]
    assert (taken.json["sizeBytes"], taken.json["tarballSizeBytes"],
            taken.json["uploadedToStore"]) == (30, 7, True)


def test_one_that_failed_frees_its_key(edge, owner, source):
    post(edge, owner, f"{source}/tarball", idempotencyKey="k")
    work_on(
        source,
        Outcome(False, SandboxStatus.RUNNING, error="The object store did not take the archive."))
    failed = post(edge, owner, f"{source}/tarball", idempotencyKey="k")
    assert (
        failed.status_code == 503
        and failed.json["error"] == "The object store did not take the archive."
    )
    assert "still being taken" in post(edge, owner, f"{source}/tarball",
                                       idempotencyKey="k").json["error"]


def test_archives_and_their_copies_have_a_lane_of_their_own(edge, owner, source):
    post(edge, owner, f"{source}/tarball", idempotencyKey="k")
    assert queue_of(source) == "node.n1.archive"
    work_on(source, Outcome(True, SandboxStatus.RUNNING, snapshot=STORED))
    taken = post(edge, owner, f"{source}/tarball", idempotencyKey="k").json["id"]
    assert queue_of(post(edge, owner, "fork", snapshotId=taken).json["id"]) == "node.n1.archive"
    assert queue_of(edge.api.post(SANDBOXES, json={},
                                  headers=edge.key(owner)).json["id"]) == "node.n1.ops"


def test_a_copy_goes_to_any_node_with_room_unless_it_is_pinned(edge, owner, source):
    taken = archived(edge, owner, source)
    nodes.heartbeat(NodeFacts("n2", "127.0.0.1", 64, 10**9, 20000, 29999, {}))
    try:
        assert post(edge, owner, "fork", snapshotId=taken).json["nodeId"] == "n2", "the emptier one"
        pinned = post(edge, owner, "fork", {"X-Svc-Node": "n1"}, snapshotId=taken)
        assert pinned.status_code == 201 and pinned.json["nodeId"] == "n1"
        assert post(edge, owner, "fork", {"X-Svc-Node": "nowhere"},
                    snapshotId=taken).status_code == 421
        with connection():
            Node.update(heartbeat_at=now() - timedelta(hours=1)).where(Node.id == "n1").execute()
        assert post(edge, owner, "fork",
                    snapshotId=taken).json["nodeId"] == "n2", "its own node may be gone"
    finally:
        nodes.set_accepting("n2", accepting=False)
        nodes.heartbeat(NODE)


def test_nothing_but_a_wake_goes_on_beside_it(edge, owner, source):
    post(edge, owner, f"{source}/tarball")
    assert post(edge, owner, f"{source}/wake").json["status"] == "running"
    for path in (f"{source}/hibernate", f"{source}/snapshot", f"{source}/fork",
                 f"{source}/tarball"):
        answer = post(edge, owner, path)
        assert answer.status_code == 503 and "being archived" in answer.json["error"]
