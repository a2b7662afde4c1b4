"""Events are recorded with the change they tell of, once, in an order that can be trusted
(contract, Platform webhooks)."""
import threading
from datetime import timedelta, timezone

import pytest

from config.settings import Settings
from models.database import connection, database, now
from models.events import Event
from models.ids import new_id
from models.operations import Operation
from models.snapshots import Snapshot
from models.states import OperationState, Plan, SnapshotState
from models.users import User
from services.events import record
from services.events.types import EventType
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations.claims import LeaseLost
from services.protocols import Deps
from services.sandboxes import create, lifecycle, outcomes
from services.sandboxes.caller import Caller
from services.sandboxes.copies import capture as snapshots
from services.sandboxes.copies import forks
from services.sandboxes.outcomes import Outcome, fail_overdue
from services.sandboxes.requests import CreateRequest
from tasks.wiring import no_guest
from tests.contract.event_schemas import BODY, DATA, Strict
from tests.fakes.outside import ListQueue
from tests.rows.told_events import (
    HIBERNATED,
    OPTIONS,
    RUNNING,
    STOPPED,
    begun,
    boot,
    brief,
    capture,
    claim,
    finish,
    told,
)


@pytest.fixture(scope="module", autouse=True)
def base(fresh_rows):
    heartbeat(NodeFacts("n1", "127.0.0.1", 10_000, 10_000_000, 20000, 29999, {}))


@pytest.fixture
def deps():
    return Deps(Settings(operation_wait_s=0.05, operation_sweep_s=0.01), ListQueue(), no_guest)


@pytest.fixture
def alice():
    """An owner of this test only."""
    with connection():
        return User.create(id=new_id("usr"), email=f"{new_id()}@example.test", password_hash="x",
                           plan=Plan.LEGACY_PRO)


def test_a_sandbox_that_booted(deps, alice):
    sandbox_id = create.create(deps, Caller(alice), CreateRequest(OPTIONS)).id
    assert told(alice) == [], "not before it is reachable"
    finish(sandbox_id)
    body, = told(alice)
    assert body["type"] == "sandbox.started"
    assert body["data"] == {
        "sandboxId": sandbox_id,
        "nodeId": "n1",
        "boot": "cold",
        "sourceSandboxId": None,
        "snapshotId": None,
    }


def test_sleep_and_wake_are_no_events(deps, alice):
    sandbox_id = boot(deps, alice)
    begun(lifecycle.hibernate, deps, Caller(alice), sandbox_id)
    finish(sandbox_id, HIBERNATED)
    begun(lifecycle.wake, deps, Caller(alice), sandbox_id)
    finish(sandbox_id)
    assert [body["type"] for body in told(alice)] == ["sandbox.started"]


@pytest.mark.parametrize("first", [RUNNING, HIBERNATED, None])
def test_a_deleted_sandbox(deps, alice, first):
    sandbox_id = create.create(deps, Caller(alice), CreateRequest(OPTIONS)).id
    if first:
        finish(sandbox_id, first)
    begun(lifecycle.delete, deps, Caller(alice), sandbox_id)
    finish(sandbox_id, STOPPED)
    assert lifecycle.delete(deps, Caller(alice), sandbox_id).status == "stopped"
    stopped = [data for kind, data in brief(alice) if kind == "sandbox.stopped"]
    assert stopped == [{
        "sandboxId": sandbox_id, "nodeId": "n1", "reason": "deleted", "error": None
    }]


def test_a_boot_that_failed(deps, alice):
    sandbox_id = create.create(deps, Caller(alice), CreateRequest(OPTIONS)).id
    finish(sandbox_id, STOPPED, ok=False, error="Nothing listened on port 3000 within 60 s.")
    assert brief(alice) == [("sandbox.stopped", {
        "sandboxId": sandbox_id, "nodeId": "n1", "reason": "boot_failed",
        "error": "Nothing listened on port 3000 within 60 s.",
    })]


def test_a_boot_that_nobody_took_in_time(deps, alice):
    sandbox_id = create.create(deps, Caller(alice), CreateRequest(OPTIONS)).id
    with connection():
        Operation.update(deadline_at=now() - timedelta(seconds=1)).where(
            Operation.sandbox_id == sandbox_id
        ).execute()
    assert fail_overdue(deps) == 1
    (kind, data), = brief(alice)
    assert (kind, data["sandboxId"], data["reason"]) == ("sandbox.stopped", sandbox_id,
                                                         "boot_failed")
    assert "did not finish" in data["error"]


def test_a_fork_whose_source_could_not_be_captured(deps, alice):
    source = boot(deps, alice)
    fork = forks.of_sandbox(deps, Caller(alice), source, OPTIONS).id
    finish(source, ok=False, error="disk full")
    assert brief(alice)[1:] == [("sandbox.stopped", {
        "sandboxId": fork, "nodeId": "n1", "reason": "source_not_captured", "error": "disk full",
    })]


def test_a_fork_and_its_capture_that_are_overdue_together_stop_once(deps, alice):
    source = boot(deps, alice)
    fork = forks.of_sandbox(deps, Caller(alice), source, OPTIONS).id
    with connection():
        open_ones = Operation.sandbox_id.in_([source, fork]) & Operation.finished_at.is_null()
        Operation.update(deadline_at=now() - timedelta(seconds=1)).where(open_ones).execute()
    fail_overdue(deps)
    assert [(kind, data["sandboxId"]) for kind, data in brief(alice)[1:]] == [
        ("sandbox.stopped", fork)
    ]


def test_a_source_that_is_deleted_while_its_fork_waits(deps, alice):
    source = boot(deps, alice)
    fork = forks.of_sandbox(deps, Caller(alice), source, OPTIONS).id
    begun(lifecycle.delete, deps, Caller(alice), source)
    finish(source, STOPPED)
    stopped = [(data["sandboxId"], data["reason"])
               for kind, data in brief(alice)
               if kind == "sandbox.stopped"]
    assert stopped == [(fork, "source_not_captured"), (source, "deleted")]


def test_a_snapshot_and_its_upload(deps, alice):
    source = boot(deps, alice)
    snapshot_id = capture(deps, alice, source)
    kind, data = brief(alice)[-1]
    assert kind == "sandbox.snapshot.recorded"
    assert data == {
        "snapshotId": snapshot_id,
        "sourceSandboxId": source,
        "nodeId": "n1",
        "kind": "user_project",
        "rootfsSha": "ab" * 32,
        "sizeBytes": 123,
        "tarballSizeBytes": 0,
    }
    with connection(), database.atomic():
        Snapshot.update(uploaded_to_store=True).where(Snapshot.id == snapshot_id).execute()
        record.snapshot_uploaded(snapshot_id)
    assert brief(alice)[-1] == ("sandbox.snapshot.uploaded", data)


def test_a_failed_snapshot_is_no_event(deps, alice):
    source = boot(deps, alice)
    begun(snapshots.take, deps, Caller(alice), source)
    finish(source, ok=False, error="disk full")
    assert [kind for kind, _ in brief(alice)] == ["sandbox.started"]


def test_the_capture_that_carries_a_fork_is_no_event_and_the_fork_names_its_source(deps, alice):
    source = boot(deps, alice)
    fork = forks.of_sandbox(deps, Caller(alice), source, OPTIONS).id
    finish(source, state=SnapshotState.READY)
    finish(fork)
    assert brief(alice)[1:] == [("sandbox.started", {
        "sandboxId": fork,
        "nodeId": "n1",
        "boot": "fork",
        "sourceSandboxId": source,
        "snapshotId": None,
    })]


def test_a_fork_of_a_snapshot_names_both(deps, alice):
    source = boot(deps, alice)
    snapshot_id = capture(deps, alice, source)
    fork = forks.of_snapshot(deps, Caller(alice), snapshot_id, OPTIONS).id
    finish(fork)
    data = brief(alice)[-1][1]
    assert (data["boot"], data["sourceSandboxId"], data["snapshotId"]) == (
        "fork",
        source, snapshot_id,
    )


def test_a_result_that_does_not_count_tells_nothing(deps, alice):
    sandbox_id = create.create(deps, Caller(alice), CreateRequest(OPTIONS)).id
    late = claim(sandbox_id)
    begun(lifecycle.delete, deps, Caller(alice), sandbox_id)
    with connection(), pytest.raises(LeaseLost):
        outcomes.finish(late, Outcome(True, RUNNING))
    assert told(alice) == []
    with connection():
        assert Operation.get(Operation.id == late.operation_id).state == OperationState.SUPERSEDED


def test_an_event_stands_and_falls_with_its_change(alice):
    with connection(), pytest.raises(ZeroDivisionError):
        with database.atomic():
            record.deploy_succeeded(alice.id, "shop", "run1", "intent")
            raise ZeroDivisionError
    with connection(), pytest.raises(RuntimeError, match="transaction"):
        record.deploy_succeeded(alice.id, "shop", "run1", "intent")
    assert told(alice) == []


def test_events_of_one_subject_have_times_in_the_order_of_their_commits(alice):
    subject, order, lock = new_id(), [], threading.Lock()

    def work():
        for _ in range(15):
            with connection(), database.atomic():
                event = record.deploy_succeeded(alice.id, subject, "run", None)
                with lock:
                    order.append(event.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    moments = {body["id"]: body["occurredAt"] for body in told(alice)}
    assert len(set(moments.values())) == 120
    assert order == sorted(order, key=moments.get)


def test_times_go_on_when_the_clock_is_set_back(alice):
    with connection(), database.atomic():
        ahead = record.deploy_succeeded(alice.id, "clock", "run1", None)
        Event.update(occurred_at=now() + timedelta(hours=1)).where(Event.id == ahead.id).execute()
        later = record.deploy_failed(alice.id, "clock", "run2", None, "no manifest")
    assert later.occurred_at > now() + timedelta(minutes=59)


def test_every_type_of_the_contract_keeps_its_schema(deps, alice):
    source = boot(deps, alice)
    snapshot_id = capture(deps, alice, source)
    with connection(), database.atomic():
        record.snapshot_uploaded(snapshot_id)
        record.deploy_succeeded(alice.id, "shop", "run1", "intent \x00 \u2028 ü")
        record.deploy_failed(alice.id, "shop", "run2", None, "The build failed.")
    begun(lifecycle.delete, deps, Caller(alice), source)
    finish(source, STOPPED)
    bodies = told(alice)
    assert {body["type"]
            for body in bodies} == set(DATA) == {kind.value
                                                 for kind in EventType} - {"webhook.test"}
    for body in bodies:
        assert BODY().validate(body) == {}
        assert Strict.from_dict(DATA[body["type"]])().validate(body["data"]) == {}, body
    assert (
        next(body for body in bodies if body["type"] == "deploy.succeeded")["data"][
            "deployIntentId"
        ]
        == "intent \x00 \u2028 ü"
    )


def test_the_time_is_the_database_servers(alice):
    with connection(), database.atomic():
        event = record.deploy_succeeded(alice.id, new_id(), "run", None)
        server = database.execute_sql("SELECT clock_timestamp()").fetchone()[0]
    assert timedelta(0) <= server - event.occurred_at < timedelta(seconds=5)
    assert event.occurred_at.astimezone(timezone.utc).microsecond % 1000 == 0
