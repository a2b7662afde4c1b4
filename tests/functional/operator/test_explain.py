"""What `explain` says of operations in every state, from the rows alone."""
import re
from datetime import timedelta

import pytest

from config.settings import Settings
from models.database import connection, database, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind, Plan, SandboxStatus
from models.users import User
from services.errors import NotFound
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations import claims, outbox
from services.operations.begin import begin, lock_sandbox
from services.operator import explain as explanations
from services.protocols import Deps
from services.sandboxes import create
from services.sandboxes.caller import Caller
from services.sandboxes.idle import touch_values
from services.sandboxes.insert import NewSandbox, insert
from services.sandboxes.outcomes import Outcome, begin_stop, finish
from services.sandboxes.requests import CreateRequest, LaunchOptions

pytestmark = pytest.mark.usefixtures("fresh_rows")
SETTINGS = Settings()


class Taken:
    """A broker that takes everything."""

    def publish(self, queue, job, payload):
        pass


@pytest.fixture
def sandbox_id():
    """A sandbox whose boot is pending, on a node that lives."""
    with connection():
        database.execute_sql(
            "TRUNCATE activities, operations, outbox, sandboxes, warm_images, nodes, users CASCADE")
        owner = User.create(id="alice", email="alice@example.test", password_hash="x",
                            plan=Plan.LEGACY_PRO)
    heartbeat(NodeFacts("n1", "127.0.0.1", 8, 8192, 20000, 20099, {}))
    options = LaunchOptions(env={"TOKEN": "hunter2"})
    return create.create(Deps(SETTINGS, Taken(), None), Caller(owner), CreateRequest(options)).id


def explain(subject, length=0):
    """The sentences, with times to ten seconds: some pass before it is asked."""
    text = " ".join(explanations.explain(SETTINGS, str(subject), lambda queue: length).sentences)
    return re.sub(r"\b(\d+) s\b", lambda found: f"{round(int(found[1]), -1)} s", text)


def set_operation(**columns):
    with connection():
        Operation.update(**columns).execute()


def claim(sandbox_id, lease_s=10):
    with connection():
        return claims.claim(sandbox_id, 1, "n1/ops", lease_s)


def ago(seconds):
    return now() - timedelta(seconds=seconds)


def test_nobody_has_taken_it(sandbox_id):
    text = explain(sandbox_id)
    assert (
        f"Sandbox {sandbox_id} of alice@example.test is provisioning and booting on node n1 (1"
        " vCPU,"
        in text
    )
    assert f"the boot of {sandbox_id}, was asked for 0 s ago" in text and "is pending." in text
    assert "No worker has taken it yet. It is announced again in " in text
    assert "0 messages are in queue node.n1.ops, so its worker has taken what there was." in text
    assert "It is given up in 600 s" in text
    assert "3 messages are in queue node.n1.ops; its worker is busy or does not run." in explain(
        sandbox_id, 3)
    assert "The broker does not answer" in explain(sandbox_id, None)


def test_its_number_explains_the_operation_alone(sandbox_id):
    with connection():
        number = Operation.get().id
    text = explain(number)
    assert text.startswith(
        f"Operation {number}, the boot of {sandbox_id}") and "Sandbox " not in text
    found = explanations.explain(SETTINGS, str(number), lambda queue: 0)
    assert (found.sandbox.id, found.operation.id) == (sandbox_id, number)


def test_its_message_has_not_left(sandbox_id):
    with connection():
        outbox.add("node.n1.ops", "node.sandbox.boot", {"op_seq": 1, "sandbox_id": sandbox_id})
    assert "its message waits for the broker" in explain(sandbox_id)


def test_the_sweeps_do_not_run(sandbox_id):
    set_operation(announce_at=ago(5))
    assert "It is being announced again now." in explain(sandbox_id)
    set_operation(announce_at=ago(60))
    assert "should have been announced again 60 s ago" in explain(sandbox_id)
    assert "do the processes control and beat run?" in explain(sandbox_id)


def test_the_sweeps_leave_a_silent_node_alone(sandbox_id):
    set_operation(announce_at=ago(60))
    with connection():
        Node.update(heartbeat_at=ago(3600)).execute()
    text = explain(sandbox_id)
    assert "It is announced again once its node reports that it works." in text
    assert "do the processes control and beat run?" not in text


def test_a_worker_has_it(sandbox_id):
    claimed = claim(sandbox_id)
    with connection():
        claims.annotate(claimed, "cold boot: not baked")
    text = explain(sandbox_id)
    assert (
        "Worker n1/ops is at it (attempt 1 of 4, begun 0 s ago" in text
        and "which ends in 10 s" in text
    )
    assert "Note: cold boot: not baked." in text


def test_its_worker_is_silent(sandbox_id):
    claim(sandbox_id, lease_s=-30)
    assert (
        "Worker n1/ops has it (attempt 1 of 4) but is silent: its lease ended 30 s ago"
        in explain(sandbox_id)
    )


def test_it_was_put_back_and_why(sandbox_id):
    claimed = claim(sandbox_id)
    with connection():
        claims.put_back(claimed, 40, "DriverError: no slot is free")
    text = explain(sandbox_id)
    assert "The attempt before failed: DriverError: no slot is free." in text
    assert (
        "It was put back after attempt 1 of 4. It is taken up again in 40 s" in text
        and "Worker" not in text
    )


def test_it_is_parked_and_what_for(sandbox_id):
    claimed = claim(sandbox_id)
    with connection():
        claims.park(claimed, 20, "its service to be ready")
    text = explain(sandbox_id)
    assert "It waits for its service to be ready, since 0 s ago" in text
    assert "It is taken up again in 20 s" in text and "Worker" not in text


def test_it_waits_for_another_one_which_is_explained_too(sandbox_id):
    with connection():
        before = Operation.get()
        row = Sandbox.get_by_id(sandbox_id)
        fork = insert(Deps(SETTINGS, Taken(), None), NewSandbox(
            "fork", Caller(User.get()), Node.get(), row.vcpus, row.mem_mb, LaunchOptions()))
        waiting, _ = begin(SETTINGS, fork, OperationKind.BOOT, after=before)
    text = explain("fork")
    assert f"It waits until operation {before.id} has succeeded, and fails with it:" in text
    assert (
        f"Operation {before.id}, the boot of {sandbox_id}" in text
        and "No worker has taken it yet." in text
    )
    assert explain(waiting.id) in text


def test_a_stop_by_an_operator_is_never_given_up(sandbox_id):
    with connection(), database.atomic():
        row = lock_sandbox(sandbox_id)
        begin_stop(SETTINGS, row, requested_by="operator")
    text = explain(sandbox_id)
    assert "by the operator and is pending" in text and "A stop is never given up." in text
    assert "queue node.n1.ctl" in text


@pytest.mark.parametrize(("columns", "sentence"), [
    (lambda: {"heartbeat_at": ago(3600)}, "Node n1 has been silent since 36"),
    (lambda: {"accepting": False},
     "Node n1 is closed: it starts no new sandboxes and wakes none, but"),
    (lambda: {"draining_until": now() + timedelta(seconds=90)},
     "Node n1 is being drained, which ends in "),
])
def test_its_node_is_what_keeps_it(sandbox_id, columns, sentence):
    assert "Node n1" not in explain(sandbox_id)
    with connection():
        Node.update(**columns()).execute()
    assert sentence in explain(sandbox_id)


def test_it_is_over(sandbox_id):
    claimed = claim(sandbox_id)
    with connection():
        finish(
            claimed,
            Outcome(False, SandboxStatus.STOPPED, sandbox={"error": "Could not be started."},
                    error="Could not be started.", operator_error="DriverError: no space left"))
        Node.update(accepting=False).execute()
    text = explain(sandbox_id)
    assert (
        f"{sandbox_id} of alice@example.test is stopped on" in text
        and "and has failed. It ended" in text
    )
    assert (
        "The owner is told: Could not be started." in text
        and "operators: DriverError: no space left" in text
    )
    assert "closed" not in text, "a stopped sandbox waits for no node"


def test_a_running_one_says_what_keeps_it_awake(sandbox_id):
    claimed = claim(sandbox_id)
    values = touch_values(600) | {"operator_note": "booted from disk: no memory"}
    with connection():
        finish(claimed, Outcome(True, SandboxStatus.RUNNING, sandbox=values))
    text = explain(sandbox_id)
    assert "It falls asleep in 600 s" in text and "no call is in flight" in text
    assert "Note: booted from disk: no memory." in text and "and has succeeded." in text
    with connection():
        Activity.create(sandbox_id=sandbox_id, expires_at=now() + timedelta(seconds=60))
    assert "1 calls are in flight, which keep it awake" in explain(sandbox_id)


def test_secrets_are_not_among_it(sandbox_id):
    with connection():
        token = Sandbox.get().agent_token
    found = repr(explanations.explain(SETTINGS, sandbox_id, lambda queue: 0))
    assert "hunter2" not in found and token not in found


@pytest.mark.parametrize("subject", ["nobody", "999999", "9" * 30, "", "٣"])
def test_what_there_is_not(sandbox_id, subject):
    with pytest.raises(NotFound):
        explain(subject)
