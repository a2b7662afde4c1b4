"""GET /v1/snapshots, GET and DELETE /v1/snapshots/{id}: what an owner sees and may remove."""
import pytest

from models.database import connection, now
from models.ids import new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotKind, SnapshotState
from services.hosts.nodes import heartbeat
from services.snapshots import deletion
from tests.stack.edge import NODE

SNAPSHOTS = "/v1/snapshots"


@pytest.fixture
def owner(edge):
    heartbeat(NODE)
    return edge.newcomer()


@pytest.fixture
def headers(edge, owner):
    return edge.key(owner)


@pytest.fixture
def make(edge, owner, headers):
    """Rows of snapshots of `owner`, oldest first."""
    source = edge.api.post("/v1/sandboxes", json={}, headers=headers).json["id"]

    def rows(count=1, **columns):
        with connection():
            return [
                Snapshot.create(**{
                    "id": new_id("snap"), "owner": owner.id, "node_id": "n1", "vcpus": 1,
                    "mem_mb": 1024, "cwd": "/home/user", "source_sandbox_id": source,
                    "state": SnapshotState.READY, **columns
                }).id for _ in range(count)
            ]

    return rows


def page(edge, headers, query=""):
    answer = edge.api.get(f"{SNAPSHOTS}{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json


def ids(listed):
    return [entry["id"] for entry in listed["snapshots"]]


def test_an_empty_list(edge, headers):
    assert page(edge, headers) == {"snapshots": [], "total": 0, "limit": 100, "offset": 0}


def test_newest_first_in_stable_pages(edge, headers, make):
    made = make(4)
    with connection():
        Snapshot.update(created_at=now()).where(Snapshot.id.in_(made[:3])).execute()
    paged = []
    for offset in range(5):
        listed = page(edge, headers, f"?limit=1&offset={offset}")
        assert (listed["total"], listed["limit"], listed["offset"]) == (4, 1, offset)
        paged += ids(listed)
    assert paged == ids(page(edge, headers)) and sorted(paged) == sorted(made)
    assert page(edge, headers, "?limit=501")["limit"] == 500
    for query, named in (("?limit=0", "limit"), ("?offset=-1", "offset"), ("?status=x", "status"),
                         ("?limit=1&limit=2", "limit")):
        answer = edge.api.get(f"{SNAPSHOTS}{query}", headers=headers)
        assert answer.status_code == 400 and named in answer.json["error"]


def test_only_what_can_be_forked_is_listed(edge, headers, make):
    ready, archived = make() + make(kind=SnapshotKind.FILES_ONLY, archive_key="k")
    for columns in ({"transient": True}, *({"state": state} for state in SnapshotState
                                           if state != SnapshotState.READY)):
        make(**columns)
    assert ids(page(edge, headers)) == [archived, ready]
    assert page(edge, edge.key(edge.newcomer()))["total"] == 0


@pytest.mark.parametrize(("columns", "looked_up", "deleted"), [
    ({}, 200, 200),
    ({"transient": True}, 404, 404),
    ({"state": SnapshotState.PENDING}, 409, 409),
    ({"state": SnapshotState.FAILED}, 404, 200),
    ({"state": SnapshotState.DELETING}, 404, 200),
    ({"state": SnapshotState.DELETED}, 404, 200),
], ids=str)
def test_one_of_each_state(edge, headers, make, columns, looked_up, deleted):
    path = f"{SNAPSHOTS}/{make(**columns)[0]}"
    stranger = edge.key(edge.newcomer())
    for method, expected in (("GET", looked_up), ("DELETE", deleted), ("DELETE", deleted)):
        assert edge.api.open(path, method=method, headers=headers).status_code == expected, method
        refused = edge.api.open(path, method=method, headers=stranger).status_code
        assert refused == (404 if columns.get("transient") else 403)
    assert edge.api.get(f"{SNAPSHOTS}/unknown", headers=headers).status_code == 404
    assert edge.api.delete(f"{SNAPSHOTS}/unknown", headers=headers).status_code == 404


def test_a_deleted_snapshot_is_gone_at_once_for_its_owner(edge, headers, make):
    taken = make()[0]
    shown = edge.api.get(f"{SNAPSHOTS}/{taken}", headers=headers).json
    answer = edge.api.delete(f"{SNAPSHOTS}/{taken}", headers=headers)
    assert (answer.status_code, answer.json) == (200, shown)
    assert edge.api.get(f"{SNAPSHOTS}/{taken}", headers=headers).status_code == 404
    assert page(edge, headers)["total"] == 0
    fork = edge.api.post("/v1/sandboxes/fork", json={"snapshotId": taken}, headers=headers)
    assert fork.status_code == 404


def test_a_delete_is_repeatable_while_the_node_finishes(edge, headers, make, monkeypatch):
    path, delete = f"{SNAPSHOTS}/{make()[0]}", deletion.delete
    first = edge.api.delete(path, headers=headers)

    def finished_first(deps, snapshot_id):
        with connection():
            deletion.deleted(snapshot_id)
        delete(deps, snapshot_id)

    monkeypatch.setattr(deletion, "delete", finished_first)
    for _ in range(2):
        again = edge.api.delete(path, headers=headers)
        assert (again.status_code, again.json) == (200, first.json)


def test_what_stands_in_the_way_is_named_and_nothing_changes(edge, headers, make):
    published, booting = make(2)
    answer = edge.api.post("/v1/templates/standing/latest", json={"snapshotId": published},
                           headers=headers)
    assert answer.status_code == 201
    boot = edge.api.post("/v1/sandboxes/fork", json={"snapshotId": booting}, headers=headers).json
    for taken, reason in ((published, "template standing-v1"), (booting, boot["id"])):
        answer = edge.api.delete(f"{SNAPSHOTS}/{taken}", headers=headers)
        assert answer.status_code == 409 and reason in answer.json["error"]
        assert edge.api.get(f"{SNAPSHOTS}/{taken}", headers=headers).status_code == 200
    with connection():
        assert Sandbox.get_by_id(boot["id"]).status == "provisioning"
