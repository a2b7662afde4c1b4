"""Who gets the slots of a lane, and how parked operations come back, against a real Postgres."""
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.nodes import Node
from models.operations import Operation
from models.states import Lane, OperationKind, OperationState, SandboxStatus
from services.errors import RateLimited, Unavailable
from services.operations import claims, fair_share, sweeps
from services.operations.fair_share import SharedLane
from services.sandboxes import create, lifecycle
from services.sandboxes.copies import capture, forks
from services.sandboxes.outcomes import Outcome, fail_overdue, finish, report_running
from services.sandboxes.requests import CaptureRequest, LaunchOptions
from tests.rows.operations import CREATE, boot, caller, claim, row, succeed

LANE = SharedLane("n1", Lane.OPS, 4, 0.75)
SMALL = replace(CREATE, size="small")


def make(deps, owner, count=1):
    return [create.create(deps, caller(owner), SMALL).id for _ in range(count)]


def take(announced, lane=LANE, lease_s=10.0):
    with connection():
        return fair_share.claim_fairest(lane, (announced, 1), lease_s)


def end(claimed):
    """Finish a boot and return what is announced afterwards."""
    with connection():
        finish(claimed, Outcome(True, SandboxStatus.RUNNING))
        return [message.payload["sandbox_id"]
                for message in fair_share.announce_left_behind(LANE, claimed.owner_id)]


def park(claimed, delay_s, what="the guest"):
    with connection():
        claims.park(claimed, delay_s, what)


def let_pass(sandbox_id, seconds):
    """Put the times of what is parked back, as if `seconds` had gone by."""
    past = timedelta(seconds=seconds)
    with connection():
        Operation.update(
            due_at=Operation.due_at - past, announce_at=Operation.announce_at - past,
            wait_since=Operation.wait_since - past,
        ).where(Operation.sandbox_id == sandbox_id).execute()


def operation(sandbox_id):
    with connection():
        return Operation.get(Operation.sandbox_id == sandbox_id)


@pytest.fixture
def roomy(deps):
    with connection():
        Node.update(vcpus=1000, mem_mb=10 ** 6, host_port_high=29999).execute()
    return deps


@pytest.mark.parametrize(("slots", "share", "cap"), [(4, 0.75, 3), (16, 0.75, 12), (1, 0.75, 1),
                                                     (2, 0.5, 1), (8, 1.0, 8)])
def test_a_cap_is_a_share_and_at_least_one(slots, share, cap):
    assert SharedLane("n1", Lane.OPS, slots, share).cap == cap


def test_the_announced_operation_is_taken_among_equals_and_the_oldest_else(roomy):
    first, second = make(roomy, "alice", 2)
    assert take(second).sandbox_id == second
    assert take("another").sandbox_id == first
    assert take(first) is None


def test_an_owner_gets_no_more_than_the_cap_and_the_next_slot_goes_to_another(roomy):
    mine = make(roomy, "alice", 6)
    held = [take(one) for one in mine]
    assert [one is None for one in held] == [False] * 3 + [True] * 3
    (other,) = make(roomy, "mallory")
    assert take(mine[3]).sandbox_id == other, "the message only says that there is work"


def test_who_holds_fewer_slots_comes_first(roomy):
    mine = make(roomy, "alice", 3)
    assert take(mine[0]).sandbox_id == mine[0]
    (other,) = make(roomy, "mallory")
    assert take(mine[1]).sandbox_id == other
    assert take(mine[1]).sandbox_id == mine[1]


def test_what_was_left_behind_is_announced_when_a_claim_ends(roomy):
    mine = make(roomy, "alice", 5)
    held = [take(one) for one in mine]
    assert end(held[0]) == [mine[3]]
    assert take(mine[3]).sandbox_id == mine[3]
    park(held[1], 60)
    with connection():
        assert [message.payload["sandbox_id"] for message in
                fair_share.announce_left_behind(LANE, "alice")] == [mine[4]]
        assert fair_share.announce_left_behind(LANE, "mallory") == []


def test_claims_of_dead_workers_hold_no_slot(roomy):
    mine = make(roomy, "alice", 4)
    for one in mine[:3]:
        assert take(one, lease_s=-1)
    assert take(mine[3]).sandbox_id == mine[3]


def test_many_workers_at_once_keep_to_the_cap(roomy):
    mine, taken = make(roomy, "alice", 8), []
    threads = [threading.Thread(target=lambda one=one: taken.append(take(one))) for one in mine]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in taken) == 3


def test_lanes_and_nodes_are_apart(roomy):
    (mine,) = make(roomy, "alice")
    assert take(mine, SharedLane("n1", Lane.CTL, 8, 0.75)) is None
    assert take(mine, SharedLane("n2", Lane.OPS, 4, 0.75)) is None


def test_a_parked_operation_is_nobodys_until_it_is_due(roomy):
    (mine,) = make(roomy, "alice")
    park(take(mine), 60)
    assert take(mine) is None and claim(mine) is None
    roomy.queue.sent.clear()
    due = sweeps.announce_due(roomy.settings, roomy.queue, "n1")
    assert 30 < (due - now()).total_seconds() < 61 and not roomy.queue.sent
    let_pass(mine, 61)
    assert sweeps.announce_due(roomy.settings, roomy.queue, "n2") is None and not roomy.queue.sent
    assert sweeps.announce_due(roomy.settings, roomy.queue, "n1") < now()
    assert [payload["sandbox_id"] for _, _, payload in roomy.queue.sent] == [mine]
    claimed = take(mine)
    assert (claimed.attempts, claimed.epoch) == (1, 2), "waiting uses up no attempt"
    assert claimed.waited_for_s("the guest") > 60 and claimed.waited_for_s("another") == 0


def test_a_wait_is_counted_over_all_its_parkings(roomy):
    (mine,) = make(roomy, "alice")
    park(take(mine), 0)
    since = operation(mine).wait_since
    park(take(mine), 0)
    assert operation(mine).wait_since == since
    park(take(mine), 0, "another thing")
    assert operation(mine).wait_since > since


def test_a_parked_operation_is_swept_if_its_node_does_not(roomy):
    (mine,) = make(roomy, "alice")
    park(take(mine), -1)
    sweeps.announce_neglected(roomy)
    assert roomy.queue.sent[-1][2]["sandbox_id"] == mine


def test_a_parked_operation_ends_at_its_deadline_and_by_a_stop(roomy):
    late, stopped = make(roomy, "alice", 2)
    for one in (late, stopped):
        park(take(one), 60)
    with pytest.raises(Unavailable):
        lifecycle.delete(roomy, caller("alice"), stopped)
    assert operation(stopped).state == OperationState.SUPERSEDED
    with connection():
        Operation.update(deadline_at=now() - timedelta(seconds=1)).where(
            Operation.sandbox_id == late).execute()
    assert fail_overdue(roomy) == 1
    assert row(late).status == "stopped"


def test_a_sandbox_is_running_while_its_wake_goes_on(roomy):
    sandbox_id = boot(roomy, request=SMALL)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(roomy, caller("alice"), sandbox_id)
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    with pytest.raises(Unavailable):
        lifecycle.wake(replace(roomy, settings=replace(roomy.settings, readiness_wait_s=0)),
                       caller("alice"), sandbox_id, readiness_port=9999)
    claimed = claim(sandbox_id)
    assert claimed.readiness_port == 9999 and row(sandbox_id).readiness_port is None
    with connection():
        report_running(claimed, {"vm_ip": "10.0.0.2"}, None, "as told")
    assert (row(sandbox_id).status, row(sandbox_id).task) == ("running", "wake")
    park(claimed, 0)
    with connection(), pytest.raises(claims.LeaseLost):
        report_running(claimed, {"vm_ip": "10.0.0.3"}, None, None)
    assert row(sandbox_id).vm_ip == "10.0.0.2"
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    assert (row(sandbox_id).vm_ip, row(sandbox_id).idle_at) == ("", None)


def test_nothing_waits_for_a_wake_that_only_waits_for_its_service(roomy):
    sandbox_id = boot(roomy, request=SMALL)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(roomy, caller("alice"), sandbox_id)
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    answers = []
    patient = replace(roomy, settings=replace(roomy.settings, operation_wait_s=10.0))
    waker = threading.Thread(target=lambda: answers.append(lifecycle.wake(
        patient, caller("alice"), sandbox_id, readiness_port=9999)))
    waker.start()
    while row(sandbox_id).task != "wake":
        time.sleep(0.01)
    claimed = claim(sandbox_id)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(roomy, caller("alice"), sandbox_id)
    with connection():
        report_running(claimed, {}, None, None)
    park(claimed, 60)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(roomy, caller("alice"), sandbox_id)
    assert row(sandbox_id).task == "hibernate"
    waker.join(10)
    assert answers[0].status == "running" and "hibernate" in answers[0].error


def test_an_owner_has_only_so_many_open_operations_but_may_always_stop(roomy):
    few = replace(roomy, settings=replace(roomy.settings, open_operations=3))
    source = boot(roomy, request=SMALL)
    mine = make(roomy, "alice", 3)
    before = len(roomy.queue.sent)
    with connection():
        count = Operation.select().count()
    for refused in (
        lambda: create.create(few, caller("alice"), SMALL),
        lambda: forks.of_sandbox(few, caller("alice"), source, LaunchOptions()),
        lambda: capture.take(few, caller("alice"), source, CaptureRequest()),
        lambda: lifecycle.hibernate(few, caller("alice"), source),
    ):
        with pytest.raises(RateLimited) as error:
            refused()
        assert error.value.retry_after_s and "under way" in error.value.text
    with connection():
        assert Operation.select().count() == count and len(roomy.queue.sent) == before
    make(few, "mallory")
    with pytest.raises(Unavailable):
        lifecycle.delete(few, caller("alice"), mine[0])
    assert row(mine[0]).task == OperationKind.STOP
