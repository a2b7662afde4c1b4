"""A deploy that a node has begun and cannot go on with, on two VM hosts with lanes of their own;
their simulated guests build nothing."""
import pytest

from tests.clients.deploys import Deploys
from tests.stack.database import query
from tests.stack.processes import second_node
from tests.stack.waiting import becomes, until

OTHER = "node-c"
LANES = ("ctl", "ops", "bulk", "archive", "deploy")


@pytest.fixture(scope="module")
def other(sim_stack):
    """A second node."""
    with second_node(sim_stack, OTHER, LANES) as node:
        yield node


def run(stack, slug):
    """Node, builder, step of the last run, and what operators are told."""
    return query(stack, "SELECT node_id, builder_sandbox_id, step, operator_error FROM deploy_runs"
                        " WHERE slug = %s ORDER BY version DESC LIMIT 1", slug)[0]


def builds_on(stack, slug, node_id):
    """The run's builder, once it runs on that node."""
    found = query(stack, "SELECT s.id FROM deploy_runs r JOIN sandboxes s"
                         " ON s.id = r.builder_sandbox_id WHERE r.slug = %s AND r.node_id = %s"
                         " AND s.node_id = %s AND s.status = 'running'", slug, node_id, node_id)
    return found[0][0] if found else None


def status(stack, sandbox):
    return query(stack, "SELECT status FROM sandboxes WHERE id = %s", sandbox)[0][0]


@pytest.mark.slow
def test_a_peer_builds_what_is_stored_and_the_old_node_cleans_up(sim_stack, alice, other, fault):
    here, headers = sim_stack.settings.node_id, alice.key_headers | {"X-Svc-Node": OTHER}
    editor = alice.post("/v1/sandboxes", json={}, headers=headers).json()["id"]
    alice.wait_for(editor, "running")
    other.stop("node-bulk")  # so nothing is uploaded
    taken = alice.post(f"/v1/sandboxes/{editor}/snapshot", json={}).json()["id"]
    Deploys(sim_stack, alice).publish("moving", taken, **{"async": True})
    until(lambda: builds_on(sim_stack, "moving", OTHER))
    builder = builds_on(sim_stack, "moving", OTHER)

    for name in ("node-deploy", "node-ops", "node-ctl"):
        other.crash(name)
    query(sim_stack, "UPDATE nodes SET heartbeat_at = 'epoch' WHERE id = %s", OTHER)
    until(lambda: "not in the object store yet" in (run(sim_stack, "moving")[3] or ""))
    assert run(sim_stack, "moving")[:2] == (OTHER, builder)

    fault("fetch.imported")
    other.start("node-bulk")
    until(lambda: builds_on(sim_stack, "moving", here))
    assert fault.reached(), "the peer's worker was killed when it had the disk"
    fetched = sim_stack.settings.node_dir / "snapshots" / taken / "snapshot.json"
    assert fetched.exists() and status(sim_stack, builder) == "running"

    other.start("node-ctl", "node-ops", "node-deploy")
    becomes(lambda: status(sim_stack, builder), "stopped")
    assert builds_on(sim_stack, "moving", here), "the peer keeps what it has begun"
    Deploys(sim_stack, alice).remove("moving")
    until(lambda: not fetched.exists(), 30)
    alice.delete(f"/v1/sandboxes/{editor}")


def test_a_run_leaves_a_node_that_is_closed(sim_stack, alice, other):
    editor = alice.create()["id"]
    taken = alice.post(f"/v1/sandboxes/{editor}/snapshot", json={}).json()["id"]
    becomes(lambda: alice.get(f"/v1/snapshots/{taken}").json()["uploadedToStore"])
    here = sim_stack.settings.node_id
    query(sim_stack, "UPDATE nodes SET accepting = false WHERE id = %s", here)
    try:
        Deploys(sim_stack, alice).publish("closed", taken, **{"async": True})
        until(lambda: builds_on(sim_stack, "closed", OTHER))
    finally:
        query(sim_stack, "UPDATE nodes SET accepting = true WHERE id = %s", here)
    Deploys(sim_stack, alice).remove("closed")
    alice.delete(f"/v1/sandboxes/{editor}")
