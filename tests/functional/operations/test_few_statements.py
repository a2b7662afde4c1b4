"""What an operation asks of the database while its caller waits: every statement is counted, but
those that begin and end a transaction."""
import logging

import pytest

from models.database import connection
from models.states import Lane, OperationKind, SandboxStatus
from nodeworker.hypervisor.host_facts import UsageReading
from services.hosts import assignments
from services.metering.counting import Sample
from services.operations import begin, claims, fair_share
from services.operations.fair_share import SharedLane
from services.sandboxes import create
from services.sandboxes.outcomes import Outcome, finish
from tests.rows.operations import CREATE, boot, caller, claim, row, succeed

LANE = SharedLane("n1", Lane.OPS, 4, 0.75)


@pytest.fixture
def asked(caplog):
    """The statements so far, without their values, since it was called last."""
    caplog.set_level(logging.DEBUG, logger="peewee")

    def take():
        texts = [record.msg[0] for record in caplog.records if record.name == "peewee"]
        caplog.clear()
        return texts

    return take


def run(sandbox_id, number):
    """The end of an operation that leaves the sandbox running in a process of that number."""
    reading = Sample(sandbox_id, "alice", 1, None, UsageReading(f"run {number}", 5, 10))
    return Outcome(True, SandboxStatus.RUNNING, usage=reading)


def hibernated(deps):
    made = boot(deps)
    begin_again(deps, made, OperationKind.HIBERNATE)
    succeed(made, SandboxStatus.HIBERNATED)
    return made


def begin_again(deps, sandbox_id, kind):
    with connection():
        begin.begin(deps.settings, begin.lock_sandbox(sandbox_id), kind)


def test_a_claim_is_a_lock_and_one_statement(deps, asked):
    made = create.create(deps, caller("alice"), CREATE)
    asked()
    with connection():
        claimed = fair_share.claim_fairest(LANE, (made.id, 1), 10.0)
    assert (claimed.sandbox_id, claimed.op_seq, claimed.attempts) == (made.id, 1, 1)
    lock, taken = asked()
    assert "pg_advisory_xact_lock" in lock and taken.startswith('UPDATE "operations"')


def test_to_park_is_one_whatever_was_waited_for_before(deps, asked):
    made = create.create(deps, caller("alice"), CREATE).id
    for what in ("the guest", "another thing", "the guest"):
        claimed = claim(made)
        asked()
        with connection():
            claims.park(claimed, 0, what)
        assert len(found := asked()) == 1, found


def test_a_node_is_told_of_a_sandbox_by_two(deps, asked):
    made = boot(deps)
    asked()
    assert assignments.get_assigned(deps.settings, made).is_raw == row(made).skip_app_processes
    assert len(asked()) == 3, "the row, its ports, and the row that this test read"


def test_the_end_of_a_boot_is_ten(deps, asked):
    made = create.create(deps, caller("alice"), CREATE).id
    claimed = claim(made)
    asked()
    with connection():
        finish(claimed, run(made, 1))
    assert len(found := asked()) == 10, found


def test_the_end_of_a_wake_is_six(deps, asked):
    made = hibernated(deps)
    begin_again(deps, made, OperationKind.WAKE)
    first = claim(made)
    with connection():
        finish(first, run(made, 1))
    begin_again(deps, made, OperationKind.HIBERNATE)
    succeed(made, SandboxStatus.HIBERNATED)
    begin_again(deps, made, OperationKind.WAKE)
    claimed = claim(made)
    asked()
    with connection():
        finish(claimed, run(made, 2))
    assert len(found := asked()) == 6, found
