"""Forks of a sandbox that are asked for at once are made of one capture, which none of them misses
anything in that was done before it was asked for; the last one takes its memory."""
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from models.database import connection
from models.operations import Operation
from models.snapshots import Snapshot
from models.states import OperationKind, SandboxStatus, SnapshotState
from nodeworker import runner
from nodeworker.hypervisor.driver import RunningVm
from nodeworker.hypervisor.host_facts import SnapshotFacts
from services.errors import Unavailable
from services.operations import claims
from services.sandboxes import lifecycle
from services.sandboxes.copies import capture
from services.sandboxes.outcomes import Outcome, finish
from tests.rows.operations import caller, claim, fork_of, row, run


@pytest.fixture
def driver(monkeypatch, node):
    """What the node's driver was told, by calls that do nothing: of each machine whether it was to
    leave its snapshot the memory, and which snapshots were removed."""
    told = SimpleNamespace(shares={}, removed=[])

    def create(spec):
        told.shares[spec.sandbox_id] = spec.shares_snapshot
        return RunningVm(spec.sandbox_id, "10.0.0.2")

    def snapshot(sandbox_id, snapshot_id, *, transient):
        assert transient
        return SnapshotFacts(snapshot_id, 0, 0.0, has_memory=True)

    for call in (create, snapshot):
        monkeypatch.setattr(node.driver, call.__name__, call)
    monkeypatch.setattr(node.driver, "delete_snapshot", told.removed.append)
    monkeypatch.setattr(runner.lifecycle, "bring_up", lambda *_: None)
    monkeypatch.setattr(runner.lifecycle, "end_copied_server", lambda *_: None)
    return told


def operation_of(sandbox):
    with connection():
        return Operation.get((Operation.sandbox_id == sandbox)
                             & (Operation.op_seq == row(sandbox).op_seq))


def snapshot_of(sandbox):
    with connection():
        return Snapshot.get_by_id(operation_of(sandbox).snapshot_id)


def captures(source):
    """The captures of the source, the oldest first."""
    with connection():
        return list(Operation.select().where(
            (Operation.sandbox_id == source) & (Operation.kind == OperationKind.SNAPSHOT)
        ).order_by(Operation.id))


def delete(deps, sandbox):
    with pytest.raises(Unavailable, match="goes on"):  # nobody works on it yet
        lifecycle.delete(deps, caller("alice"), sandbox)


def end_capture(claimed):
    with connection():
        finish(claimed, Outcome(True, SandboxStatus.RUNNING,
                                snapshot={"state": SnapshotState.READY}))


def test_forks_wait_for_one_capture_and_fail_with_it(deps, source):
    made = [fork_of(deps, source) for _ in range(3)]
    (begun,) = captures(source)
    assert {operation_of(fork).after_id for fork in made} == {begun.id}
    assert len({operation_of(fork).snapshot_id for fork in made}) == 1
    delete(deps, source)
    assert {row(fork).status for fork in made} == {"stopped"}


def test_the_last_one_takes_the_memory_and_then_the_capture_goes(deps, node, source, driver):
    first, second, third = (fork_of(deps, source) for _ in range(3))
    run(node, source)  # and goes on with the first fork
    assert row(first).status == "running" and row(second).task == row(third).task == "boot"
    run(node, second)
    assert driver.removed == [] and snapshot_of(second).state == SnapshotState.READY
    run(node, third)
    assert {row(fork).status for fork in (first, second, third)} == {"running"}
    assert driver.shares == {first: True, second: True, third: False}
    assert driver.removed == [snapshot_of(third).id]
    assert snapshot_of(third).state == SnapshotState.DELETED


def test_one_that_is_deleted_leaves_the_others_their_capture(deps, node, source, driver):
    given_up, wanted = fork_of(deps, source), fork_of(deps, source)
    delete(deps, given_up)
    run(node, source)
    assert row(wanted).status == "running" and driver.shares == {wanted: False}


@pytest.mark.parametrize("given_back", [False, True], ids=["claimed", "given-back"])
def test_a_capture_that_may_be_taken_already_is_not_joined(deps, source, given_back):
    fork_of(deps, source)
    claimed = claim(source)
    if given_back:
        with connection():
            claims.put_back(claimed, 0)
    with pytest.raises(Unavailable, match="ask again later"):
        fork_of(deps, source)
    assert len(captures(source)) == 1


def test_who_waited_for_such_a_capture_shares_the_next_one(deps, source):
    before = fork_of(deps, source)
    claimed = claim(source)
    patient = replace(deps, settings=replace(deps.settings, operation_wait_s=20))
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(fork_of, patient, source) for _ in range(2)]
        time.sleep(0.1)  # both have looked
        end_capture(claimed)
        made = [each.result() for each in asked]
    _, second = captures(source)
    assert {operation_of(fork).after_id for fork in made} == {second.id}
    assert operation_of(before).after_id == claimed.operation_id


def test_also_if_a_worker_has_begun_to_work_on_it(deps, source):
    fork_of(deps, source)
    claimed = claim(source)
    with connection():
        earlier, here = (capture.find_transient(row(source), claimed.op_seq - back)
                         for back in (1, 0))
    assert here is None and earlier is not None
    assert [each.id for each in earlier] == [claimed.snapshot_id, claimed.operation_id]


def test_a_snapshot_that_its_owner_takes_carries_no_fork(deps, source):
    with connection():
        capture.begin_capture(deps, row(source), "snap_mine")
    with pytest.raises(Unavailable):
        fork_of(deps, source)
