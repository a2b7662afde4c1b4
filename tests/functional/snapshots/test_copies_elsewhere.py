"""A snapshot whose disk is in the object store is forked on another VM host than its own: it boots
there from that disk. Two hosts with workers of their own and simulated guests."""
import base64

import pytest

from objects.store import ObjectStore
from services.snapshots.stored_objects import disk_key, image_file_key
from tests.stack.database import query
from tests.stack.processes import second_node
from tests.stack.waiting import becomes, until

OTHER = "node-e"
KEPT = base64.b64encode(b"kept").decode()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def other(sim_stack):
    """A second node, which the snapshots are on."""
    with second_node(sim_stack, OTHER, ("ctl", "ops", "bulk")) as node:
        yield node


@pytest.fixture
def taken(alice, other):
    """The id of a snapshot on the second node that is in the store; its source is gone."""
    source = alice.post("/v1/sandboxes", json={},
                        headers=alice.key_headers | {"X-Svc-Node": OTHER}).json()["id"]
    alice.wait_for(source, "running")
    alice.post(f"/v1/sandboxes/{source}/files",
               json=[{"path": "/kept", "content": KEPT, "mode": 420}])
    snapshot = alice.post(f"/v1/sandboxes/{source}/snapshot", json={}).json()["id"]
    becomes(lambda: alice.get(f"/v1/snapshots/{snapshot}").json()["uploadedToStore"])
    alice.delete(f"/v1/sandboxes/{source}")
    yield snapshot
    alice.delete(f"/v1/snapshots/{snapshot}")


def fork(alice, snapshot, **headers):
    made = alice.post("/v1/sandboxes/fork", json={"snapshotId": snapshot},
                      headers=alice.key_headers | headers)
    assert made.status_code == 201, made.text
    return made.json()["id"]


def note(stack, sandbox):
    return query(stack, "SELECT operator_note FROM sandboxes WHERE id = %s", sandbox)[0][0]


def copy_on(stack, snapshot):
    """Where the node of a stack has the files of a snapshot."""
    return stack.settings.node_dir / "snapshots" / snapshot


def test_copies_run_on_another_host_while_their_own_takes_none(sim_stack, alice, other, taken,
                                                               fault):
    query(sim_stack, "UPDATE nodes SET accepting = false WHERE id = %s", OTHER)
    fault("fetch.imported")
    try:
        copies = [fork(alice, taken) for _ in range(2)]
    finally:
        query(sim_stack, "UPDATE nodes SET accepting = true WHERE id = %s", OTHER)
    for each in copies:
        copy = alice.wait_for(each, "running", timeout_s=60)
        assert copy["nodeId"] == sim_stack.settings.node_id
        assert alice.exec(each, "cat", "/kept")["stdout"] == "kept"
        assert "is on another node" in note(sim_stack, each)
    assert fault.reached(), "a worker was killed when it had the disk"
    until(lambda: not copy_on(sim_stack, taken).exists(), 60)
    for each in copies:
        assert alice.exec(each, "cat", "/kept")["stdout"] == "kept", "its own disk stays whole"
        alice.delete(f"/v1/sandboxes/{each}")
    assert copy_on(other, taken).exists() and alice.get(f"/v1/snapshots/{taken}").json()["id"]


def test_the_guest_image_is_fetched_where_it_is_missing(sim_stack, alice, taken, tmp_path):
    here = sim_stack.settings.node_id
    (tmp_path / "image.json").write_text("{}")
    ObjectStore(sim_stack.settings).put_once(image_file_key("built-there", "image.json"),
                                             tmp_path / "image.json")
    query(sim_stack, "UPDATE snapshots SET image_key = 'built-there' WHERE id = %s", taken)
    copy = alice.wait_for(fork(alice, taken, **{"X-Svc-Node": here}), "running", timeout_s=60)
    assert copy["nodeId"] == here
    assert alice.exec(copy["id"], "cat", "/kept")["stdout"] == "kept"
    until(lambda: query(sim_stack, "SELECT 1 FROM nodes WHERE id = %s AND images ? 'built-there'",
                        here), 20)
    alice.delete(f"/v1/sandboxes/{copy['id']}")


@pytest.mark.parametrize("fault_of_it", ["is not in the store", "is damaged in the store"])
def test_the_owner_is_told_of_a_disk_that_cannot_be_fetched(sim_stack, alice, taken, fault_of_it):
    store = ObjectStore(sim_stack.settings)
    store.remove_all(disk_key(taken))
    if "damaged" in fault_of_it:
        store.put_stream(disk_key(taken), [b'{"files": {}}'])
    here = sim_stack.settings.node_id
    made = alice.wait_for(fork(alice, taken, **{"X-Svc-Node": here}), "stopped", timeout_s=60)
    assert made["error"] == ("The disk of the snapshot could not be brought to the node of the"
                             " sandbox.")
    told = query(sim_stack, "SELECT operator_error FROM operations WHERE sandbox_id = %s"
                            " AND kind = 'boot'", made["id"])[0][0]
    assert taken in told and fault_of_it in told
    assert not copy_on(sim_stack, taken).exists()
    again = fork(alice, taken)
    assert alice.wait_for(again, "running")["nodeId"] == OTHER, "its own node has the files"
    alice.delete(f"/v1/sandboxes/{again}")
