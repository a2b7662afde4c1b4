"""Sweeps: what was neglected is announced again, what idles sleeps, what is overdue ends."""
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import DatabaseUnavailable, connection, database, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind, OperationState, SandboxStatus
from services.errors import Conflict, Unavailable
from services.guest_calls.use_while_running import in_use
from services.hosts.nodes import NodeFacts, heartbeat
from services.hosts.sandbox_ports import open_ports
from services.operations import sweeps
from services.sandboxes import create, lifecycle
from services.sandboxes.idle import hibernate_idle
from services.sandboxes.outcomes import fail_overdue
from tasks import control
from tests.rows.operations import CREATE, boot, caller, claim, row, succeed

NODE = NodeFacts("n1", "127.0.0.1", 64, 4096, 20000, 20099, {})


def fall_silent(node_id):
    Node.update(heartbeat_at=now() - timedelta(hours=1)).where(Node.id == node_id).execute()


def told(deps):
    return [payload["sandbox_id"] for _, _, payload in deps.queue.sent]


def test_a_neglected_operation_is_announced_again(deps):
    view = create.create(deps, caller("alice"), CREATE)
    deps.queue.sent.clear()
    with connection():
        Operation.update(announce_at=now() - timedelta(seconds=1)).execute()
    assert sweeps.announce_neglected(deps) == 1
    claim(view.id, lease_s=-1)
    with connection():
        Operation.update(announce_at=now() + timedelta(seconds=60)).execute()
    assert sweeps.announce_neglected(deps) == 0, "it was announced a moment ago"
    with connection():
        Operation.update(announce_at=now()).execute()
    assert sweeps.announce_neglected(deps) == 1
    assert [payload["op_seq"] for _, _, payload in deps.queue.sent] == [1, 1]


def test_a_silent_node_is_told_once_it_reports_again_and_keeps_no_other_waiting(deps, monkeypatch):
    deps = replace(deps, settings=replace(deps.settings, operation_sweep_s=60))
    silent = [create.create(deps, caller("alice"), CREATE).id for _ in range(2)]
    heartbeat(replace(NODE, id="n2"))
    neglected = create.create(deps, caller("alice", pinned_node="n2"), CREATE).id
    claim(silent[0], lease_s=-1)
    with connection():
        Operation.update(announce_at=now() - timedelta(seconds=1)).execute()
        fall_silent("n1")
    deps.queue.sent.clear()
    monkeypatch.setattr(sweeps, "_BATCH", 1)
    assert sweeps.announce_neglected(deps) == 1 and sweeps.announce_neglected(deps) == 0
    assert told(deps) == [neglected]
    heartbeat(NODE)
    assert sweeps.announce_neglected(deps) == sweeps.announce_neglected(deps) == 1
    assert told(deps) == [neglected, *silent]


def test_a_lane_that_does_not_work_is_not_told_and_the_others_are(deps):
    create.create(deps, caller("alice"), CREATE)
    heartbeat(NODE, lanes={"ctl", "bulk"})
    with connection():
        Operation.update(announce_at=now() - timedelta(seconds=1)).execute()
    deps.queue.sent.clear()
    assert sweeps.announce_neglected(deps) == 0 and not deps.queue.sent
    heartbeat(NODE, lanes={"ctl", "ops"})
    assert sweeps.announce_neglected(deps) == 1


def test_what_was_told_longest_ago_has_its_turn_first(deps, monkeypatch):
    """Those that no worker takes are due again; they keep no other from being announced."""
    monkeypatch.setattr(sweeps, "_BATCH", 1)
    deps = replace(deps, settings=replace(deps.settings, operation_sweep_s=0))
    made = [create.create(deps, caller("alice"), CREATE).id for _ in range(3)]
    with connection():
        Operation.update(announce_at=now() - timedelta(seconds=1)).execute()
    deps.queue.sent.clear()
    for _ in made:
        assert sweeps.announce_neglected(deps) == 1
    assert told(deps) == made


def test_what_a_silent_node_was_to_do_is_given_up_at_its_deadline(deps):
    never = create.create(deps, caller("alice"), CREATE).id
    with connection():
        Operation.update(deadline_at=now() - timedelta(seconds=1)).execute()
        fall_silent("n1")
    assert fail_overdue(deps) == 1 and row(never).status == "stopped"


def test_what_idles_on_a_silent_node_is_left_alone_until_it_reports(deps):
    idle = boot(deps)
    with connection():
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).execute()
        fall_silent("n1")
    assert hibernate_idle(deps) == 0 and row(idle).task is None
    heartbeat(NODE)
    assert hibernate_idle(deps) == 1 and row(idle).task == "hibernate"


def test_what_idles_where_no_lane_could_put_it_to_sleep_stays_in_use(deps):
    idle = boot(deps)
    heartbeat(NODE, lanes={"ctl", "bulk"})
    with connection():
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).execute()
    assert hibernate_idle(deps) == 0 and row(idle).task is None
    heartbeat(NODE, lanes={"ctl", "ops"})
    assert hibernate_idle(deps) == 1


def test_idle_sweep_spares_what_is_in_use(deps):
    idle, busy, fresh = boot(deps), boot(deps), boot(deps)
    with connection():
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).where(
            Sandbox.id.in_([idle, busy])
        ).execute()
    with in_use(row(busy), for_s=60, what="exec"):
        with connection():
            Sandbox.update(idle_at=now() - timedelta(seconds=1)).where(Sandbox.id == busy).execute()
        assert hibernate_idle(deps) == 1
    assert [row(one).task for one in (idle, busy, fresh)] == ["hibernate", None, None]
    assert row(busy).idle_at > now(), "the end of a call restarts the clock"
    with pytest.raises(Conflict, match="hibernating"):
        with in_use(row(idle), for_s=60, what="exec"):
            pass


def test_an_activity_of_a_dead_process_does_not_keep_a_sandbox_awake_for_ever(deps):
    sandbox_id = boot(deps)
    with connection():
        Activity.create(sandbox_id=sandbox_id, expires_at=now() - timedelta(seconds=1))
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).execute()
    assert hibernate_idle(deps) == 1


def test_an_overdue_boot_ends_as_stopped_and_a_stop_is_never_given_up(deps):
    never, stopping = create.create(deps, caller("alice"), CREATE).id, boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.delete(deps, caller("alice"), stopping)
    with connection():
        Operation.update(deadline_at=now() - timedelta(seconds=1)).execute()
    assert fail_overdue(deps) == 1
    assert row(never).status == "stopped" and "did not finish" in row(never).error
    assert row(stopping).task == OperationKind.STOP
    with connection():
        assert Operation.get(Operation.sandbox_id == never).state == OperationState.FAILED


def take_too_long():
    with connection(), database.atomic():
        database.execute_sql("SET LOCAL statement_timeout = 50")
        database.execute_sql("SELECT pg_sleep(60)")


def test_a_step_that_the_database_ends_keeps_none_of_the_others_from_their_work(
        deps, away, caplog):
    """Postgres ends what takes too long with the error that a database gives which goes away."""
    done = []
    control._do_each(take_too_long, lambda: done.append("the next"))
    assert done == ["the next"] and "the sweep goes on" in caplog.text
    with away(), pytest.raises(DatabaseUnavailable):
        control._do_each(take_too_long, lambda: done.append("what cannot be done"))
    assert done == ["the next"]


def operations_of(sandbox_id):
    """Their kinds and states, in order."""
    with connection():
        return [(each.kind, each.state) for each in Operation.select().where(
            Operation.sandbox_id == sandbox_id).order_by(Operation.op_seq)]


def sleep_and_wake(deps, sandbox_id):
    for change, status in ((lifecycle.hibernate, SandboxStatus.HIBERNATED),
                           (lifecycle.wake, SandboxStatus.RUNNING)):
        with pytest.raises(Unavailable):
            change(deps, caller("alice"), sandbox_id)
        succeed(sandbox_id, status)


def end_days_ago(days):
    with connection():
        Operation.update(finished_at=now() - timedelta(days=days)).where(
            Operation.finished_at.is_null(False)).execute()


def test_of_what_failed_again_and_again_the_last_stays_and_the_last_that_succeeded(deps):
    sandbox_id = boot(deps)
    with connection():
        for number, state in enumerate(("failed", "succeeded", *["failed"] * 50), 100):
            Operation.create(sandbox_id=sandbox_id, op_seq=number, kind="archive", state=state,
                             node_id="n1", owner_id="alice", lane="archive", deadline_at=now(),
                             finished_at=now())
    end_days_ago(31)
    assert sweeps.forget_old(30) == 50 and sweeps.forget_old(30) == 0
    assert operations_of(sandbox_id) == [("boot", "succeeded"), ("archive", "succeeded"),
                                         ("archive", "failed")]


def test_operations_that_ended_long_ago_go_but_for_what_says_how_a_sandbox_is(deps):
    deps = replace(deps, settings=replace(deps.settings, operation_wait_s=0.05))
    asleep, awake, gone = (boot(deps, request=replace(
        CREATE, options=replace(CREATE.options, ports=(3000,)))) for _ in range(3))
    for _ in range(2):
        sleep_and_wake(deps, awake)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(deps, caller("alice"), asleep)
    with connection():
        was_open = open_ports(awake)
        Sandbox.update(status=SandboxStatus.STOPPED).where(Sandbox.id == gone).execute()
    end_days_ago(29.9)
    assert sweeps.forget_old(30) == 0
    end_days_ago(30.1)
    assert sweeps.forget_old(0) == 0, "0 days keeps them all"
    assert sweeps.forget_old(30) == 3 and sweeps.forget_old(30) == 0
    assert operations_of(gone) == []
    assert operations_of(awake) == [("boot", "succeeded"), ("hibernate", "succeeded"),
                                    ("wake", "succeeded")]
    assert operations_of(asleep) == [("boot", "succeeded"), ("hibernate", "pending")]
    with connection():
        assert open_ports(awake) == was_open != set()
