"""What an account of a plan may have at most: 409 beyond it, and deleting something makes room."""
import threading

import pytest

from models.database import connection
from models.nodes import DiskUse
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import Plan, SandboxStatus
from services.hosts.nodes import heartbeat
from tests.stack.edge import NODE, make_edge

SANDBOXES = "/v1/sandboxes"


@pytest.fixture(scope="module")
def limited(postgres_url, redis_url, tmp_path_factory):
    """Both hosts with small quotas for one plan."""
    plan = Plan.LEGACY_PRO.value
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"),
                         sandbox_quota={plan: 2}, snapshot_quota={plan: 1},
                         storage_quota_gb={plan: 3}, operation_wait_s=0.1)


@pytest.fixture(autouse=True)
def alive(limited):
    heartbeat(NODE)


def create(edge, owner, **body):
    return edge.api.post(SANDBOXES, json=body, headers=edge.key(owner))


def ready(sandbox_id):
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == sandbox_id).execute()


def test_one_sandbox_too_many_is_409_by_create_and_by_fork_until_one_is_deleted(limited):
    owner, other = limited.newcomer(), limited.newcomer(Plan.LEGACY_MAX)
    first = create(limited, owner, idempotencyKey="first").json
    create(limited, owner)
    for answer in (create(limited, owner),
                   limited.api.post(f"{SANDBOXES}/{first['id']}/fork", json={},
                                    headers=limited.key(owner))):
        assert answer.status_code == 409
    assert "has 2 sandboxes" in create(limited, owner).json["error"]
    assert create(limited, owner, idempotencyKey="first").json == first, "a replay makes nothing"
    assert all(create(limited, other).status_code == 201 for _ in range(3)), "no limit for its plan"
    with connection():
        Sandbox.update(status=SandboxStatus.STOPPED, task=None).where(
            Sandbox.id == first["id"]).execute()
    assert create(limited, owner).status_code == 201


def test_creates_at_once_do_not_pass_the_limit_together(limited):
    owner, codes = limited.newcomer(), []
    headers = limited.key(owner)

    def attempt():
        codes.append(limited.client().post(SANDBOXES, json={}, headers=headers).status_code)

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201, 201, 409, 409, 409, 409]


def test_one_snapshot_too_many_is_409_and_uses_no_key_up(limited):
    owner = limited.newcomer()
    headers, sandbox_id = limited.key(owner), create(limited, owner).json["id"]
    ready(sandbox_id)
    path = f"{SANDBOXES}/{sandbox_id}/snapshot"
    limited.api.post(path, headers=headers)
    ready(sandbox_id)
    for _ in range(2):
        refused = limited.api.post(path, json={"idempotencyKey": "k"}, headers=headers)
        assert refused.status_code == 409 and "has 1 snapshots" in refused.json["error"]
    with connection():
        Snapshot.update(state="deleted").where(Snapshot.owner == owner.id).execute()
    # Nobody works on it here, so it is not ready in time.
    assert limited.api.post(path, json={"idempotencyKey": "k"}, headers=headers).status_code == 503


def test_bytes_of_sandboxes_and_snapshots_count_as_last_measured(limited):
    owner = limited.newcomer()
    headers, sandbox_id = limited.key(owner), create(limited, owner).json["id"]
    ready(sandbox_id)
    with connection():
        DiskUse.create(node_id="n1", kind="sandbox", resource_id=sandbox_id,
                       size_bytes=3 * 1000**3)
    upload = limited.api.put(f"{SANDBOXES}/{sandbox_id}/uploads/a", data=b"x", headers=headers,
                             content_type="application/octet-stream")
    for answer in (create(limited, owner), upload,
                   limited.api.post(f"{SANDBOXES}/{sandbox_id}/snapshot", headers=headers)):
        assert answer.status_code == 409 and "3 GB on disk" in answer.json["error"], answer.text
    assert limited.api.post(f"{SANDBOXES}/{sandbox_id}/wake", headers=headers).status_code == 200
