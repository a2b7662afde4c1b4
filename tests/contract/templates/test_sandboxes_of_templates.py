"""Sandboxes made from templates: their shape, plan, node and variables, and what refuses them."""

import pytest

from models.database import connection
from models.nodes import PortBinding
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, Plan, SandboxStatus, SnapshotState
from services.hosts.nodes import NodeFacts, heartbeat
from tests.contract.templates.caller import SERVE, row


def test_a_sandbox_gets_a_copy_that_later_changes_do_not_touch(alice, name):
    taken = alice.snapshot()
    alice.publish(name, snapshotId=taken, **SERVE)
    made = row(alice.create(templateId=name, ports=[5000, 3000], env={"BOTH": "create"}))
    alice.publish(name, snapshotId=alice.snapshot(), startCommand="other", readinessPort=9000,
                  ports=[9000])
    alice.delete(name)
    with connection():
        after = Sandbox.get_by_id(made.id)
        ports = {
            bound.guest_port
            for bound in PortBinding.select().where(PortBinding.sandbox_id == made.id)
        }
        boot = Operation.get(Operation.sandbox_id == made.id)
    assert (after.start_command, after.readiness_port, after.snapshot_id) == ("serve", 3000, taken)
    assert ports == {3000, 4000, 5000, 1024} and after.cwd == "/srv"
    assert after.env == {"FROM": "source", "BOTH": "create"}
    assert (boot.kind, boot.snapshot_id) == (OperationKind.BOOT, taken)


def test_the_limits_of_variables_count_those_of_the_template(alice, name):
    half = {"FIRST": "x" * 40 * 1024}
    alice.publish(name, snapshotId=alice.snapshot(env=half))
    body = {"templateId": name, "idempotencyKey": "k"}
    for env in ({"SECOND": "x" * 40 * 1024}, {f"V{number}": "" for number in range(256)}):
        refused = alice.create(**body, env=env)
        assert refused.status_code == 400
        assert "env: at most" in refused.json["error"] and "template" in refused.json["error"]
    with connection():
        assert not Sandbox.select().where(
            (Sandbox.owner == alice.owner.id) & (Sandbox.status != SandboxStatus.STOPPED)).exists()
    made = alice.create(**body, env={"FIRST": "y" * 60 * 1024})
    assert made.status_code == 201, "it replaces the template's, and the key is not used up"


def test_a_system_template_does_not_carry_its_makers_variables(alice, service, name):
    service.publish(name, snapshotId=service.snapshot())
    assert row(alice.create(templateId=name, env={"MINE": "1"})).env == {"MINE": "1"}


@pytest.mark.parametrize(("plan", "body", "shape"), [
    (Plan.LEGACY_PRO, {}, (2, 2048)), (Plan.LEGACY_PRO, {"size": "small"}, (1, 1024)),
    (Plan.LEGACY_PRO, {"vcpus": 4, "memMb": 4096}, (4, 4096)), (Plan.PERSONAL, {}, (4, 8192)),
])
def test_the_plan_decides_the_shape_and_the_template_only_where_the_plan_leaves_a_choice(
        user, name, plan, body, shape):
    caller = user(plan)
    caller.publish(name, snapshotId=caller.snapshot(vcpus=2, mem_mb=2048))
    made = row(caller.create(templateId=name, **body))
    assert (made.vcpus, made.mem_mb) == shape


def test_the_plan_gates_templates_as_everything_else(user, name):
    free, starter = user(Plan.FREE), user(Plan.STARTER)
    for caller, body in ((free, {}), (starter, {"size": "pro"})):
        caller.publish(name, snapshotId=caller.snapshot())
        assert caller.create(templateId=name, **body).status_code == 402


def test_a_sandbox_is_made_where_its_template_is(alice, name):
    alice.publish(name, snapshotId=alice.snapshot())
    heartbeat(NodeFacts("emptier", "127.0.0.1", 200_000, 200_000_000, 20000, 29999, {}))
    assert alice.create(templateId=name).json["nodeId"] == "n1"
    assert alice.create(templateId=name, pin="n1").status_code == 201
    answer = alice.create(templateId=name, pin="emptier")
    assert answer.status_code == 421 and "n1" in answer.json["error"]


def test_a_full_node_is_503(alice, name):
    heartbeat(NodeFacts("tiny", "127.0.0.1", 1, 512, 20000, 29999, {}))
    alice.publish(name, snapshotId=alice.snapshot(node_id="tiny"))
    answer = alice.create(templateId=name)
    assert answer.status_code == 503 and "tiny" in answer.json["error"]


def test_a_template_whose_snapshot_is_gone_is_409_and_says_so(alice, name):
    taken = alice.snapshot()
    alice.publish(name, snapshotId=taken)
    with connection():
        Snapshot.update(state=SnapshotState.DELETED).where(Snapshot.id == taken).execute()
    answer = alice.create(templateId=name)
    assert answer.status_code == 409 and name in answer.json["error"]


def test_an_unknown_template_is_404_and_an_impossible_one_400(alice):
    assert alice.create(templateId="nothing-like-it").status_code == 404
    assert alice.create(templateId="a b").status_code == 400


def test_a_replay_is_the_first_sandbox_although_the_template_has_changed(alice, name):
    alice.publish(name, snapshotId=alice.snapshot())
    first = alice.create(templateId=name, idempotencyKey="k")
    alice.delete(name)
    assert alice.create(templateId=name, idempotencyKey="k").json == first.json
    assert alice.create(templateId="another", idempotencyKey="k").status_code == 409
    assert alice.create(templateId=name, idempotencyKey="new").status_code == 404
    assert alice.create(
        idempotencyKey="new").status_code == 201, "a refused request does not use its key up"
