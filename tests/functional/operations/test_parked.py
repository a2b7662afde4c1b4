"""When a node looks for what is parked on it, against a real Postgres."""
from dataclasses import replace
from datetime import timedelta

from models.database import connection, now
from models.deploys import Deploy, DeployRun
from models.operations import Operation
from nodeworker import parked_operations
from nodeworker.wiring import NodeDeps
from services.operations import claims
from services.sandboxes import create
from tests.rows.operations import CREATE, caller, claim


def node(deps, node_id="n1"):
    return NodeDeps(replace(deps.settings, node_id=node_id), None, deps.queue, None)


def let_pass(seconds):
    past = timedelta(seconds=seconds)
    with connection():
        Operation.update(due_at=Operation.due_at - past,
                         announce_at=Operation.announce_at - past).execute()
        DeployRun.update(announce_at=DeployRun.announce_at - past).execute()


def test_it_looks_when_the_first_is_due_and_at_least_every_two_seconds(deps):
    assert parked_operations.announce_due(node(deps)) == 2.0, "nothing is parked"
    sandbox_id = create.create(deps, caller("alice"), CREATE).id
    assert parked_operations.announce_due(node(deps)) == 2.0, "what waits in a queue is not parked"
    with connection():
        claims.park(claim(sandbox_id), 1.0, "the guest")
    deps.queue.sent.clear()
    assert 0 < parked_operations.announce_due(node(deps)) <= 1.0 and not deps.queue.sent
    assert parked_operations.announce_due(node(deps, "n2")) == 2.0, "another node's"
    let_pass(1)
    assert parked_operations.announce_due(node(deps)) <= 0, "there may be more of them"
    assert [payload["sandbox_id"] for _, _, payload in deps.queue.sent] == [sandbox_id]


def test_a_run_of_a_deploy_is_announced_when_it_is_due(deps):
    with connection():
        Deploy.create(slug="app", app_id="app_1", owner_id="alice", created_at=now(),
                      updated_at=now())
        run = DeployRun.create(slug="app", app_id="app_1", owner_id="alice", version=1,
                               node_id="n1", run_id="r", snapshot_id="s",
                               announce_at=now() + timedelta(seconds=1),
                               deadline_at=now() + timedelta(hours=1))
    assert 0 < parked_operations.announce_due(node(deps)) <= 1.0 and not deps.queue.sent
    assert parked_operations.announce_due(node(deps, "n2")) == 2.0, "another node's"
    let_pass(1)
    assert parked_operations.announce_due(node(deps)) <= 0
    assert [payload for _, _, payload in deps.queue.sent] == [{"run": run.id}]
