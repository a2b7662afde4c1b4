"""Operations that are parked, against a real Postgres: when their node looks for them, and which
wakes are ended for the sake of what is asked for next."""
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.deploys import Deploy, DeployRun
from models.operations import Operation, OutboxMessage
from models.states import OperationKind, OperationState, SandboxStatus, SnapshotState
from nodeworker import parked_operations
from nodeworker.handlers.agent_server import SERVER
from nodeworker.handlers.end_listener import LISTENER
from nodeworker.hypervisor.driver import StillStarting, VmBusy
from nodeworker.wiring import NodeDeps
from services.errors import Unavailable
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations import claims
from services.operations.claims import DATABASE_AWAY, GUEST_START, HOST_BUSY
from services.sandboxes import create, lifecycle
from services.sandboxes.copies import capture
from services.sandboxes.outcomes import Outcome, finish, report_running
from tests.rows.operations import CREATE, boot, caller, claim, row, run, succeed

NODE = NodeFacts("n1", "127.0.0.1", 64, 4096, 20000, 20099, {})


def ctl(deps, node_id="n1"):
    return NodeDeps(replace(deps.settings, node_id=node_id), None, deps.queue, None)


def let_pass(seconds):
    past = timedelta(seconds=seconds)
    with connection():
        Operation.update(due_at=Operation.due_at - past,
                         announce_at=Operation.announce_at - past).execute()
        DeployRun.update(announce_at=DeployRun.announce_at - past).execute()


def told(deps):
    """The sandboxes whose operations were announced."""
    return [payload["sandbox_id"] for queue, _, payload in deps.queue.sent
            if queue == "node.n1.ops"]


def test_it_looks_when_the_first_is_due_and_at_least_every_two_seconds(deps):
    assert parked_operations.announce_due(ctl(deps)) == 2.0, "nothing is parked"
    sandbox_id = create.create(deps, caller("alice"), CREATE).id
    assert parked_operations.announce_due(ctl(deps)) == 2.0, "what waits in a queue is not parked"
    with connection():
        claims.park(claim(sandbox_id), 1.9, "the guest")
    deps.queue.sent.clear()
    assert 0 < parked_operations.announce_due(ctl(deps)) <= 1.9 and not deps.queue.sent
    assert parked_operations.announce_due(ctl(deps, "n2")) == 2.0, "another node's"
    let_pass(2)
    assert parked_operations.announce_due(ctl(deps)) <= 0, "there may be more of them"
    assert [payload["sandbox_id"] for _, _, payload in deps.queue.sent] == [sandbox_id]


def test_a_run_of_a_deploy_is_announced_when_it_is_due(deps):
    with connection():
        Deploy.create(slug="app", app_id="app_1", owner_id="alice", created_at=now(),
                      updated_at=now())
        run = DeployRun.create(slug="app", app_id="app_1", owner_id="alice", version=1,
                               node_id="n1", run_id="r", snapshot_id="s",
                               announce_at=now() + timedelta(seconds=1.9),
                               deadline_at=now() + timedelta(hours=1))
    assert 0 < parked_operations.announce_due(ctl(deps)) <= 1.9 and not deps.queue.sent
    assert parked_operations.announce_due(ctl(deps, "n2")) == 2.0, "another node's"
    let_pass(2)
    assert parked_operations.announce_due(ctl(deps)) <= 0
    assert [payload for _, _, payload in deps.queue.sent] == [{"run": run.id}]


def test_what_is_parked_for_a_lane_that_does_not_work_is_not_announced(deps, made):
    with connection():
        claims.park(claim(made), 0, "the guest")
    heartbeat(NODE, lanes=["ctl", "bulk"])
    deps.queue.sent.clear()
    assert parked_operations.announce_due(ctl(deps)) == 2.0 and not deps.queue.sent
    heartbeat(NODE, lanes=["ctl", "ops"])
    assert parked_operations.announce_due(ctl(deps)) <= 0 and told(deps) == [made]


def test_while_the_broker_is_away_announcements_do_not_pile_up(deps, made):
    with connection():
        claims.park(claim(made), 0, "the guest")
    deps.queue.sent.clear()
    deps.queue.away = True
    for _ in range(3):
        assert parked_operations.announce_due(ctl(deps)) <= 0
        let_pass(60)
    with connection():
        assert not OutboxMessage.select().exists()
    deps.queue.away = False
    assert parked_operations.announce_due(ctl(deps)) <= 0 and told(deps) == [made]


def test_what_was_waited_for_keeps_its_seconds_while_something_else_is(made):
    for what, seconds in ((SERVER, 5000), (LISTENER, 1000), (SERVER, 500)):
        with connection():
            claims.park(claim(made), 0, what)
            Operation.update(wait_since=now() - timedelta(seconds=seconds)).execute()
    claimed = claim(made)
    assert 5500 <= claimed.waited_for_s(SERVER) < 6000
    assert 1000 <= claimed.waited_for_s(LISTENER) < 1500
    assert claimed.waited_for_s("another") == 0 and claimed.attempts == 1


@pytest.fixture
def waking(deps):
    """The id of a running sandbox that is woken to open a port."""
    sandbox_id = boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.wake(deps, caller("alice"), sandbox_id, ports=(3000,))
    return sandbox_id


def hibernate(deps, sandbox_id):
    """Ask for it; no worker carries it out."""
    with pytest.raises(Unavailable):
        lifecycle.hibernate(deps, caller("alice"), sandbox_id)


def wake_of(sandbox_id):
    with connection():
        return Operation.get((Operation.sandbox_id == sandbox_id)
                             & (Operation.kind == OperationKind.WAKE))


def test_a_wake_that_waits_for_the_service_is_ended(deps, waking):
    with connection():
        claims.park(claim(waking), 60, "port 3000")
    hibernate(deps, waking)
    assert wake_of(waking).state == OperationState.SUCCEEDED
    assert row(waking).task == OperationKind.HIBERNATE
    assert "hibernate" in row(waking).error
    succeed(waking, SandboxStatus.HIBERNATED)
    assert row(waking).error is None, "there is nothing that could be ready"


def test_an_ended_wait_is_told_until_the_next_wake_makes_up_for_it(deps, waking):
    with connection():
        claims.park(claim(waking), 60, "port 3000")
    with pytest.raises(Unavailable):
        capture.take(deps, caller("alice"), waking)
    with connection():
        finish(claim(waking), Outcome(True, SandboxStatus.RUNNING,
                                      snapshot={"state": SnapshotState.READY}))
    assert "(snapshot). The next wake" in row(waking).error and row(waking).task is None
    with pytest.raises(Unavailable):
        lifecycle.wake(deps, caller("alice"), waking)
    assert row(waking).task == OperationKind.WAKE, "one that runs, and whose service may not"


def test_who_needs_the_machine_alone_does_not_wait_for_its_service(deps):
    sandbox_id = boot(deps)
    hibernate(deps, sandbox_id)
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    with pytest.raises(Unavailable):
        lifecycle.wake(deps, caller("alice"), sandbox_id, readiness_port=3000)
    with pytest.raises(Unavailable, match="waking"):
        lifecycle.wake_machine(deps, caller("alice"), sandbox_id)
    claimed = claim(sandbox_id)
    with connection():
        report_running(claimed, {}, None, None)
        claims.park(claimed, 60, "port 3000")
    lifecycle.wake_machine(deps, caller("alice"), sandbox_id)
    assert wake_of(sandbox_id).state == OperationState.PENDING, "it goes on, for who waits for it"


def test_a_wake_that_has_yet_to_open_its_ports_is_not(deps, waking):
    hibernate(deps, waking)
    assert (wake_of(waking).state, row(waking).task) == ("pending", "wake")
    with connection():
        claims.put_back(claim(waking), 60, "the rules were not written")
    hibernate(deps, waking)
    assert (wake_of(waking).state, row(waking).task) == ("pending", "wake")


@pytest.fixture
def run_into(node, waking, monkeypatch):
    """Runs the wake once, into an error of the driver; gives its row."""
    def once(error):
        def fail(_):
            raise error

        monkeypatch.setattr(node.driver, "wake", fail)
        let_pass(60)
        run(node, waking)
        return wake_of(waking)
    return once


def test_a_wake_on_a_host_that_stays_busy_is_as_one_that_nobody_has_started(run_into):
    for _ in range(3):
        parked = run_into(VmBusy("an upload reads its disk"))
        assert (parked.state, parked.waits_for, parked.started_at) == ("pending", HOST_BUSY, None)


def test_one_whose_guest_starts_has_begun_whatever_the_host_does_but_is_not_ended(
        deps, waking, run_into):
    for error in (StillStarting("its kernel boots", 30), VmBusy("an upload reads its disk")):
        parked = run_into(error)
        assert parked.waits_for == GUEST_START and parked.started_at is not None
        hibernate(deps, waking)
        assert (row(waking).status, row(waking).task) == ("running", "wake")


@pytest.mark.parametrize("waits_for", [HOST_BUSY, DATABASE_AWAY])
def test_one_that_has_come_no_further_than_the_host_is_not_ended(deps, waking, waits_for):
    """It is as one that was started, and has opened no port."""
    with connection():
        claims.park(claim(waking), 60, waits_for)
    hibernate(deps, waking)
    assert row(waking).task == "wake"
