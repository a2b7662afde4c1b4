"""A node whose disk is nearly full takes nothing new and says so; what it has is not touched."""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from models.database import ROW_LOCK, connection, database, now
from models.ids import new_id
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind
from services.hosts import placement
from services.hosts.nodes import heartbeat
from services.operations import claims
from tests.rows.operations import claim
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
FULL = replace(NODE, disk_mb=100_000, disk_free_mb=3_999, disk_floor_mb=4_000)


def create(nodeless, owner):
    return nodeless.api.post(SANDBOXES, json={"vcpus": 1, "memMb": 1024},
                             headers=nodeless.key(owner))


def settle(sandbox_id, status):
    with connection():
        Operation.delete().where(Operation.sandbox_id == sandbox_id).execute()
        Sandbox.update(status=status, task=None).where(Sandbox.id == sandbox_id).execute()


@pytest.mark.parametrize("status", ["running", "hibernated"])
def test_below_the_floor_nothing_new_is_begun_and_what_is_there_can_be_used(
        nodeless, owner, status):
    headers = nodeless.key(owner)
    source = create(nodeless, owner).json["id"]
    settle(source, status)
    snapshot_id = new_id("snap")
    with connection():
        Snapshot.create(id=snapshot_id, owner=owner.id, node_id="n1", source_sandbox_id=source,
                        state="ready", vcpus=1, mem_mb=1024, cwd="/home/user")
    heartbeat(FULL)
    calls = [
        ("POST", SANDBOXES, {"vcpus": 1, "memMb": 1024}),
        ("POST", f"{SANDBOXES}/fork", {"snapshotId": snapshot_id}),
        ("POST", f"{SANDBOXES}/{source}/fork", {}),
        ("POST", f"{SANDBOXES}/{source}/snapshot", {}),
    ]
    answers = [nodeless.api.open(path, method=method, json=body, headers=headers)
               for method, path, body in calls]
    upload = nodeless.api.put(f"{SANDBOXES}/{source}/uploads/a", data=b"x", headers=headers,
                              content_type="application/octet-stream")
    if status == "running":
        answers.append(upload)
    else:
        assert upload.status_code == 409 and status in upload.json["error"]
    for answer in answers:
        assert answer.status_code == 503 and "short of disk space" in answer.json["error"]
        assert int(answer.headers["Retry-After"]) > 0
    with connection():
        assert Sandbox.get_by_id(source).task is None
    assert nodeless.api.get(f"{SANDBOXES}/{source}", headers=headers).json["status"] == status


def test_the_memory_of_boots_that_have_not_begun_is_counted(nodeless, owner):
    heartbeat(replace(FULL, disk_free_mb=4_000 + 2 * 1024))
    first = create(nodeless, owner)
    assert first.status_code == create(nodeless, owner).status_code == 201
    refused = create(nodeless, owner)
    assert refused.status_code == 503 and "1024 MB are needed" in refused.json["error"]
    with connection():
        Operation.update(started_at=now()).where(
            (Operation.sandbox_id == first.json["id"])
            & (Operation.kind == OperationKind.BOOT)).execute()
    heartbeat(replace(FULL, disk_free_mb=4_000 + 2 * 1024))
    assert create(nodeless, owner).status_code == 201, "the node's figure holds what has begun"


def test_the_memory_of_a_boot_that_waits_for_its_guest_is_counted_once(nodeless, owner):
    with connection():
        Operation.delete().execute()
    heartbeat(replace(FULL, disk_free_mb=4_000 + 2 * 1024))
    waiting = create(nodeless, owner).json["id"]
    claimed = claim(waiting)
    heartbeat(replace(FULL, disk_free_mb=4_000 + 1024))
    with connection():
        claims.park(claimed, 0, "the image", begun=False)
    assert create(nodeless, owner).status_code == 503, "nothing of it is there yet"
    claimed = claim(waiting)
    heartbeat(replace(FULL, disk_free_mb=4_000 + 1024))
    with connection():
        claims.park(claimed, 0, "its port")
    claimed = claim(waiting)
    assert create(nodeless, owner).status_code == 201, "the node's figure holds it"
    with connection():
        claims.put_back(claimed, 0, "it failed")
    heartbeat(replace(FULL, disk_free_mb=4_000 + 2 * 1024))
    assert create(nodeless, owner).status_code == 503, "its files were removed with the attempt"


def test_a_wake_needs_no_new_files(nodeless, owner):
    sandbox_id = create(nodeless, owner).json["id"]
    settle(sandbox_id, "hibernated")
    heartbeat(FULL)
    nodeless.api.post(f"{SANDBOXES}/{sandbox_id}/wake", headers=nodeless.key(owner))
    with connection():
        assert Sandbox.get_by_id(sandbox_id).task == OperationKind.WAKE


def test_who_claims_a_node_locks_none_of_those_that_are_full(nodeless):
    """Two that looked at full nodes in another order would each wait for the other's."""
    emptiest, less_empty = (replace(FULL, id=f"full{number}", mem_mb=(9 - number) * NODE.mem_mb)
                            for number in range(2))
    for facts in (emptiest, less_empty, NODE):
        heartbeat(facts)

    def lock_at_once(node_id):
        with connection(), database.atomic():
            return bool(Node.select().where(Node.id == node_id).for_update(
                f"{ROW_LOCK} SKIP LOCKED"))

    with connection(), database.atomic(), ThreadPoolExecutor(1) as another:
        assert placement.list_by_load(nodeless.settings)[:2] == [emptiest.id, less_empty.id]
        claimed = placement.claim_node(nodeless.settings, 1, 1024).id
        free = [another.submit(lock_at_once, each).result()
                for each in (emptiest.id, less_empty.id, claimed)]
    with connection():
        Node.delete().where(Node.id.in_([emptiest.id, less_empty.id])).execute()
    assert free == [True, True, False]
