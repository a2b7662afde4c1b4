"""A worker that has ended a capture goes on with what it has released, without the queue; who has
waited longer still comes first, and whoever dies in between loses nothing."""
from datetime import timedelta

import pytest

from models.database import connection
from models.operations import Operation, OutboxMessage
from models.states import OperationKind, SandboxStatus, SnapshotState
from nodeworker import runner
from nodeworker.faults import InjectedFault
from services.operations import outbox
from services.sandboxes import create
from services.sandboxes.outcomes import Outcome
from tests.rows.operations import CREATE, boot, caller, fork_of, row, run

QUEUE = "node.n1.ops"


@pytest.fixture
def done(monkeypatch):
    """What the handlers were called for, in order: (kind, sandbox); they succeed."""
    calls = []

    def handler(kind, **columns):
        def handle(_, claimed, sandbox):
            calls.append((kind, sandbox.id))
            return Outcome(True, SandboxStatus.RUNNING, **columns)

        return handle

    handlers = {
        OperationKind.SNAPSHOT: handler("snapshot", snapshot={"state": SnapshotState.READY}),
        OperationKind.BOOT: handler("boot"),
    }
    monkeypatch.setattr(runner.lifecycle, "HANDLERS", handlers)
    return calls


def sent(deps):
    return [payload["sandbox_id"] for queue, _, payload in deps.queue.sent if queue == QUEUE]


def left_over():
    with connection():
        return [message.payload["sandbox_id"] for message in OutboxMessage.select()]


def test_the_boot_of_a_fork_follows_its_capture_in_the_same_worker(deps, node, source, done):
    fork = fork_of(deps, source)
    run(node, source)
    assert done == [("snapshot", source), ("boot", fork)]
    assert row(fork).status == "running" and row(source).task is None
    assert sent(deps) == [source] and left_over() == []


def test_what_is_captured_is_not_metered_meanwhile_and_the_fork_is_from_its_start(
        deps, node, source, done, monkeypatch):
    asked = []
    monkeypatch.setattr(node.driver, "read_usage", asked.append)
    fork = fork_of(deps, source)
    run(node, source)
    assert asked == [fork]


def test_who_has_waited_longer_comes_first_and_is_named_by_nobody(deps, node, source, done):
    fork = fork_of(deps, source)
    older = create.create(deps, caller("mallory"), CREATE).id
    with connection():  # it was asked for before the fork was
        lowest = Operation.select().order_by(Operation.id).get().id
        Operation.update(id=lowest - 1).where(Operation.sandbox_id == older).execute()
    run(node, source)
    assert done == [("snapshot", source), ("boot", older)]
    run(node, older)
    assert done[2:] == [("boot", fork)], "the message of the older one takes the fork's turn"


def test_it_goes_on_once(deps, node, source, done):
    other = boot(deps)
    first = fork_of(deps, source)
    run(node, source)
    assert done == [("snapshot", source), ("boot", first)]
    second = fork_of(deps, other)
    run(node, other)
    assert done[2:] == [("snapshot", other), ("boot", second)]


@pytest.mark.parametrize("point", ["runner.finished", "runner.went_on"])
def test_who_dies_before_the_boot_leaves_it_to_another(
        deps, node, source, done, tmp_path, monkeypatch, point):
    fork = fork_of(deps, source)
    (tmp_path / "fault").write_text(f"{point} raise")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    with pytest.raises(InjectedFault):
        run(node, source)
    assert done == [("snapshot", source)] and row(fork).task == "boot"
    with connection():
        Operation.update(lease_until=Operation.lease_until - timedelta(hours=1)).execute()
        OutboxMessage.update(created_at=OutboxMessage.created_at - timedelta(minutes=1)).execute()
        outbox.relay_once(deps.queue)
    run(node, fork)
    assert done[1:] == [("boot", fork)] and row(fork).status == "running"


def test_a_broker_that_is_away_holds_up_no_fork(deps, node, source, done):
    fork = fork_of(deps, source)
    deps.queue.away = True
    run(node, source)
    assert row(fork).status == "running"
