"""Two VM hosts with workers of their own: pins, and copies that are made where their source is."""
import pytest

from tests.stack.database import query
from tests.stack.processes import second_node

OTHER = "node-b"


@pytest.fixture(scope="module")
def other(sim_stack):
    """The name of a second node of the stack."""
    with second_node(sim_stack, OTHER, ("ctl", "ops")):
        yield OTHER


@pytest.fixture
def there(alice, other):
    """A running sandbox on the second node."""
    made = alice.post("/v1/sandboxes", json={}, headers=alice.key_headers | {"X-Svc-Node": other})
    assert made.status_code == 201, made.text
    sandbox = alice.wait_for(made.json()["id"], "running")
    yield sandbox
    alice.delete(f"/v1/sandboxes/{sandbox['id']}")


def pinned(alice, node):
    return alice.key_headers | {"X-Svc-Node": node}


def test_a_pinned_create_runs_on_that_host(sim_stack, there, other, alice):
    assert there["nodeId"] == other
    holders = query(sim_stack, "SELECT claimed_by FROM operations WHERE sandbox_id = %s"
                    " AND kind = 'boot'", there["id"])
    assert holders == [(f"{other}/ops",)]
    alice.post(f"/v1/sandboxes/{there['id']}/files",
               json=[{"path": "/root/where", "content": "aGVyZQ==", "mode": 420}])
    assert alice.exec(there["id"], "cat", "/root/where")["stdout"] == "here"


def test_a_call_with_a_pin_to_the_other_host_is_421_and_does_nothing(sim_stack, there, alice):
    here, path = sim_stack.settings.node_id, f"/v1/sandboxes/{there['id']}"
    for action in ("hibernate", "wake", "snapshot", "fork"):
        refused = alice.post(f"{path}/{action}", headers=pinned(alice, here))
        assert refused.status_code == 421 and there["nodeId"] in refused.json()["error"]
    assert alice.delete(path, headers=pinned(alice, here)).status_code == 421
    assert alice.get(path, headers=pinned(alice, there["nodeId"])).json()["status"] == "running"


def test_a_snapshot_is_forked_on_its_host_without_a_pin(sim_stack, there, other, alice):
    here = sim_stack.settings.node_id
    taken = alice.post(f"/v1/sandboxes/{there['id']}/snapshot", json={}).json()
    assert taken["nodeId"] == other
    body = {"snapshotId": taken["id"]}
    refused = alice.post("/v1/sandboxes/fork", json=body, headers=pinned(alice, here))
    assert refused.status_code == 421
    made = alice.post("/v1/sandboxes/fork", json=body).json()
    copy = alice.wait_for(made["id"], "running")
    assert copy["nodeId"] == other
    assert query(sim_stack, "SELECT node_id FROM operations WHERE sandbox_id = %s", made["id"]) == [
        (other,)]
    alice.delete(f"/v1/sandboxes/{made['id']}")
