"""The rules of operations against a real Postgres: claims, leases, supersession, dependents,
races."""
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, database, now
from models.nodes import PortBinding
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from services.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    PlanRequired,
    Unavailable,
    WrongNode,
)
from services.operations import claims, outbox, sweeps
from services.operations.claims import LeaseLost
from services.protocols import QueueUnavailable
from services.sandboxes import create, find, lifecycle
from services.sandboxes.copies import capture as snapshots
from services.sandboxes.copies import forks
from services.sandboxes.outcomes import Outcome, finish
from services.sandboxes.requests import CaptureRequest, CreateRequest, LaunchOptions
from tests.rows.operations import CREATE, boot, caller, claim, row, succeed
from tests.stack.waiting import until


def test_create_reserves_announces_and_returns_at_once(deps):
    view = create.create(deps, caller("alice"), CreateRequest(LaunchOptions(ports=(3000, 8080))))
    assert view.status == "provisioning"
    assert sorted(view.port_map.values()) == [3000, 8080]
    assert deps.queue.sent == [("node.n1.ops", "node.sandbox.boot", {
        "sandbox_id": view.id, "op_seq": 1
    })]
    with connection():
        assert OutboxMessage.select().count() == 0


def test_no_secret_is_queued(deps):
    view = create.create(
        deps, caller("alice"), CreateRequest(LaunchOptions(env={"TOKEN": "hunter2"}))
    )
    text = repr(deps.queue.sent)
    assert "hunter2" not in text and row(view.id).agent_token not in text


def test_a_broker_that_is_away_loses_nothing(deps):
    deps.queue.away = True
    view = create.create(deps, caller("alice"), CREATE)
    with connection():
        OutboxMessage.update(created_at=now() - timedelta(seconds=5)).execute()
        with pytest.raises(QueueUnavailable):
            outbox.relay_once(deps.queue)
        deps.queue.away = False
        assert outbox.relay_once(deps.queue) == 1
        assert OutboxMessage.select().count() == 0
    assert deps.queue.sent[0][2]["sandbox_id"] == view.id


def test_sending_leaves_no_connection_open_in_a_thread_that_had_none(deps):
    with connection(), database.atomic():
        message = outbox.add("q", "node.sandbox.boot", {"sandbox_id": "none", "op_seq": 1})
    assert database.is_closed()
    outbox.flush(deps.queue, [message])
    assert database.is_closed(), "it would outlive the server's restart, dead"
    with connection():
        assert OutboxMessage.select().count() == 0


def test_a_database_that_goes_away_when_a_message_is_sent_fails_nobody(deps, away):
    """What the message tells of is committed; it comes once more."""
    with connection():
        message = outbox.add("q", "node.sandbox.boot", {"sandbox_id": "none", "op_seq": 1})
    with away():
        outbox.flush(deps.queue, [message])
    with connection():
        until(lambda: outbox.relay_once(deps.queue) == 1)
    assert deps.queue.sent == [("q", "node.sandbox.boot", message.payload)] * 2


def test_only_one_of_many_claims_wins(deps):
    view = create.create(deps, caller("alice"), CREATE)
    won = []
    threads = [threading.Thread(target=lambda: won.append(claim(view.id))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in won if one]) == 1


def test_an_expired_lease_is_taken_over_and_the_first_worker_cannot_finish(deps):
    view = create.create(deps, caller("alice"), CREATE)
    first = claim(view.id, lease_s=-1)
    second = claim(view.id)
    assert second.epoch == first.epoch + 1
    with connection(), pytest.raises(LeaseLost):
        finish(first, Outcome(True, SandboxStatus.RUNNING))
    assert row(view.id).status == "provisioning"
    with connection():
        finish(second, Outcome(True, SandboxStatus.RUNNING))
    assert (row(view.id).status, row(view.id).task) == ("running", None)


def test_a_worker_that_comes_back_ends_its_own_leases_and_the_next_sweep_announces(deps):
    """However long they would have lasted."""
    dead, alive = (create.create(deps, caller("alice"), CREATE).id for _ in range(2))
    claim(dead, lease_s=1000)
    with connection():
        claims.claim(alive, 1, "n1/bulk", 1000)
        deps.queue.sent.clear()
        assert sweeps.announce_neglected(deps) == 0
        assert claims.release_leases("n1/ops") == 1
        assert sweeps.announce_neglected(deps) == 1
    assert [payload["sandbox_id"] for _, _, payload in deps.queue.sent] == [dead]


def test_whoever_has_lost_an_operation_is_told_so_when_it_gives_it_back(deps):
    view = create.create(deps, caller("alice"), CREATE)
    late, present = claim(view.id, lease_s=-1), claim(view.id)
    with connection():
        for lost in (lambda: claims.park(late, 1, "its guest"), lambda: claims.put_back(late, 1),
                     lambda: claims.check_held(late)):
            with pytest.raises(LeaseLost):
                lost()
        claims.check_held(present)
        claims.park(present, 1, "its guest")


def test_a_port_whose_wake_failed_is_opened_by_the_next(deps):
    sandbox_id = boot(deps)

    def wake():
        with pytest.raises(Unavailable):
            lifecycle.wake(deps, caller("alice"), sandbox_id, ports=(3000,))
        return row(sandbox_id).op_seq

    first = wake()
    assert wake() == first, "the one under way opens it"
    with connection():
        finish(claim(sandbox_id), Outcome(False, SandboxStatus.RUNNING, error="It failed."))
    assert wake() == first + 1
    succeed(sandbox_id, SandboxStatus.RUNNING)
    assert lifecycle.wake(deps, caller("alice"), sandbox_id, ports=(3000,)).status == "running"
    assert row(sandbox_id).op_seq == first + 1, "it is open"


def test_a_stop_supersedes_the_boot(deps):
    view = create.create(deps, caller("alice"), CREATE)
    booting = claim(view.id)
    with pytest.raises(Unavailable):
        lifecycle.delete(deps, caller("alice"), view.id)
    with connection(), pytest.raises(LeaseLost):
        finish(booting, Outcome(True, SandboxStatus.RUNNING))
    succeed(view.id, SandboxStatus.STOPPED)
    assert lifecycle.delete(deps, caller("alice"), view.id).status == "stopped"
    with connection():
        assert PortBinding.select().count() == 0


def test_wake_waits_for_the_hibernate_under_way(deps):
    sandbox_id = boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(deps, caller("alice"), sandbox_id)
    answers = []
    patient = replace(deps, settings=replace(deps.settings, operation_wait_s=10.0))
    waker = threading.Thread(
        target=lambda: answers.append(lifecycle.wake(patient, caller("alice"), sandbox_id)))
    waker.start()
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    for _ in range(100):
        if row(sandbox_id).task == "wake":
            break
        threading.Event().wait(0.05)
    succeed(sandbox_id, SandboxStatus.RUNNING)
    waker.join(10)
    assert answers[0].status == "running"


def test_no_op_and_wrong_state(deps):
    sandbox_id = boot(deps)
    assert lifecycle.wake(deps, caller("alice"), sandbox_id).status == "running"
    with connection():
        Sandbox.update(status=SandboxStatus.STOPPED).execute()
    for call in (lifecycle.wake, lifecycle.hibernate, snapshots.take):
        with pytest.raises(Conflict, match="stopped"):
            call(deps, caller("alice"), sandbox_id)


def test_fork_of_a_live_sandbox_boots_after_the_capture(deps):
    source = boot(deps)
    fork = forks.of_sandbox(deps, caller("alice"), source, LaunchOptions())
    assert claim(fork.id) is None, "the boot must wait for the capture"
    with connection():
        capture = claim(source)
        messages = finish(
            capture, Outcome(True, SandboxStatus.RUNNING, snapshot={"state": SnapshotState.READY})
        )
    assert [message.payload["sandbox_id"] for message in messages] == [fork.id]
    assert claim(fork.id).snapshot_id == capture.snapshot_id


def test_a_failed_capture_stops_the_fork_and_spares_the_source(deps):
    source = boot(deps)
    fork = forks.of_sandbox(deps, caller("alice"), source, LaunchOptions())
    with connection():
        finish(claim(source), Outcome(False, SandboxStatus.RUNNING, error="disk full"))
    assert row(fork.id).status == "stopped" and row(fork.id).error == "disk full"
    assert (row(source).status, row(source).task) == ("running", None)
    with connection():
        assert PortBinding.select().where(PortBinding.sandbox_id == fork.id).count() == 0


def test_parallel_creates_never_promise_more_than_the_node_has(deps):
    results = []

    def one():
        try:
            results.append(create.create(deps, caller("alice"), CREATE).id)
        except Unavailable:
            results.append(None)

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in results if one]) == 4, "4096 MB hold four machines of 1024 MB"


def test_parallel_replays_of_a_key_make_one_sandbox(deps):
    request = replace(CREATE, idempotency_key="k")
    views = []
    threads = [
        threading.Thread(target=lambda: views.append(create.create(deps, caller("alice"), request)))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({view.id for view in views}) == 1 and len(views) == 10
    with connection():
        assert Sandbox.select().count() == 1
    with pytest.raises(Conflict):
        create.create(deps, caller("alice"), replace(request, options=LaunchOptions(timeout=5)))
    assert create.create(deps, caller("mallory"), request).id != views[0].id


def test_a_snapshot_key_returns_the_first_snapshot_even_after_the_sandbox_is_gone(deps):
    sandbox_id, request = boot(deps), CaptureRequest(idempotency_key="s")
    with pytest.raises(Unavailable):
        snapshots.take(deps, caller("alice"), sandbox_id, request)
    with connection():
        finish(
            claim(sandbox_id),
            Outcome(True, SandboxStatus.RUNNING, snapshot={"state": SnapshotState.READY}))
        Sandbox.update(status=SandboxStatus.STOPPED).execute()
        first = Snapshot.get()
    assert snapshots.take(deps, caller("alice"), sandbox_id, request).id == first.id


def test_plans_ownership_and_pins(deps):
    with pytest.raises(PlanRequired):
        create.create(deps, caller("bob"), CREATE)
    with pytest.raises(PlanRequired):
        create.create(deps, caller("alice"), replace(CREATE, size="fleet"))
    with pytest.raises(InvalidRequest, match="unsupported shape"):
        create.create(deps, caller("alice"), replace(CREATE, vcpus=3, mem_mb=1024))
    with pytest.raises(WrongNode):
        create.create(deps, caller("alice", "elsewhere"), CREATE)
    sandbox_id = boot(deps)
    with pytest.raises(Forbidden):
        lifecycle.hibernate(deps, caller("mallory"), sandbox_id)
    with pytest.raises(WrongNode):
        find.get_owned(caller("alice", "elsewhere"), sandbox_id)


def test_fork_rule_four(deps):
    for options in (
        LaunchOptions(start_command="serve"),
        LaunchOptions(start_command="serve", readiness_port=3000),
        LaunchOptions(start_command="serve", readiness_port=3000, ports=(3001,)),
    ):
        with pytest.raises(InvalidRequest):
            forks.of_snapshot(deps, caller("alice"), "snapx", options)
