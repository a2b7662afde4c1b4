"""What a worker does that has lost a boot: one that fails removes nothing that is another worker's,
and a sandbox that was deleted meanwhile gets no machine. And what becomes of a sandbox that runs
although its wake, or its way to sleep, has failed for good."""

from datetime import timedelta

import pytest

from bin.stack.free_ports import free_port
from models.database import connection, now
from models.operations import Operation
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from nodeworker import runner
from nodeworker.handlers import failed_operations, lifecycle
from nodeworker.hypervisor.driver import DriverError, MachineSpec, Shape, VmState
from nodeworker.not_yet import NotYet
from nodeworker.reconciliation.reconciler import Reconciler
from services.errors import Unavailable
from services.hosts import assignments
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations import attempts, outbox
from services.operations.begin import lock_sandbox
from services.sandboxes import create, idle
from services.sandboxes import lifecycle as lifecycle_rules
from services.sandboxes.outcomes import begin_stop
from tests.rows.operations import CREATE, caller, claim, row, run, succeed


def delete(deps, sandbox_id):
    """Another worker of the node stops it, from the beginning to the end."""
    with connection():
        outbox.flush(deps.queue, begin_stop(deps.settings, lock_sandbox(sandbox_id))[1])
    succeed(sandbox_id, SandboxStatus.STOPPED)


def test_the_machine_that_another_worker_has_made_meanwhile_stays(node, made):
    late, present = claim(made, lease_s=-1), claim(made)
    node.driver.create(MachineSpec(made, Shape(1, 1024), "token-0123456789", free_port()))
    sandbox = assignments.get_assigned(node.settings, made)
    for claimed, left in ((late, VmState.RUNNING), (present, None)):
        outcome = failed_operations.failure(node, claimed, sandbox, RuntimeError("a failure"))
        assert not outcome.ok
        runner._finish(node, claimed, outcome)
        assert node.driver.inspect(made) is left


def test_a_sandbox_that_was_deleted_while_its_disk_was_fetched_gets_no_machine(
        deps, node, made, monkeypatch):
    machines = []
    monkeypatch.setattr(lifecycle, "bring_here", lambda *_: delete(deps, made))
    monkeypatch.setattr(node.driver, "create", machines.append)
    run(node, made)
    assert machines == [] and row(made).status == "stopped"


@pytest.mark.parametrize("then", [NotYet("its guest"), RuntimeError("a failure"), None])
def test_a_machine_that_was_made_while_its_sandbox_was_deleted_is_removed(
        deps, node, made, monkeypatch, caplog, then):
    def bring_up(*_):
        delete(deps, made)
        if then is not None:
            raise then

    monkeypatch.setattr(lifecycle, "bring_up", bring_up)
    monkeypatch.setattr(lifecycle, "report_columns", lambda *_: None)
    run(node, made)
    assert node.driver.inspect(made) is None and row(made).status == "stopped"
    assert "failed, attempt" not in caplog.text, "it has failed of that"


def wake(deps, node, sandbox_id):
    """Whoever began with it has died after the machine ran."""
    with pytest.raises(Unavailable):
        lifecycle_rules.wake(deps, caller("alice"), sandbox_id)


def put_to_sleep(deps, node, sandbox_id):
    """The machine runs, which is not what the row says."""
    Reconciler(node).run()
    assert row(sandbox_id).task == "hibernate"


@pytest.mark.parametrize("begin", [wake, put_to_sleep])
def test_what_runs_after_a_failure_can_become_idle_and_gets_its_address(
        deps, node, asleep, begin):
    begin(deps, node, asleep)
    with connection():
        Operation.update(attempts=deps.settings.operation_attempts).where(
            Operation.state == "pending").execute()
    run(node, asleep)
    seen = row(asleep)
    assert (seen.status, seen.task, seen.vm_ip) == ("running", None, "")
    assert seen.idle_at > now() and seen.last_active_at <= now()
    Reconciler(node).run()
    assert row(asleep).task == "wake"
    run(node, asleep)
    seen = row(asleep)
    assert (seen.status, seen.task) == ("running", None) and seen.vm_ip and seen.idle_at > now()
    Reconciler(node).run()
    assert row(asleep).task is None


def test_one_that_cannot_be_put_to_sleep_keeps_no_room_from_others(deps, node, monkeypatch):
    """Its node has promised more than it has."""
    facts = NodeFacts("n1", "127.0.0.1", 2, 4096, 20000, 20099, {}, oversell=1.5)
    heartbeat(facts)
    stuck, other = (create.create(deps, caller(who), CREATE).id for who in ("mallory", "alice"))
    hibernate = node.driver.hibernate

    def hibernate_other(sandbox_id):
        if sandbox_id == stuck:
            raise DriverError("its monitor does not answer")
        hibernate(sandbox_id)

    monkeypatch.setattr(node.driver, "hibernate", hibernate_other)
    monkeypatch.setattr(lifecycle, "_flush_guest", lambda *_: None)
    monkeypatch.setattr(attempts, "limit_of", lambda *_: 1)
    for sandbox_id, left_s in ((stuck, 100), (other, 200)):
        run(node, sandbox_id)
        with connection():
            Sandbox.update(idle_at=now() + timedelta(seconds=left_s)).where(
                Sandbox.id == sandbox_id).execute()
    for expected in (stuck, other):
        assert idle.hibernate_idlest(deps, facts, 120) == 1
        run(node, expected)
    assert (row(stuck).status, row(other).status) == ("running", "hibernated")
