"""What waits when the clock of its host is set back goes on: a time that is further ahead than
anything waits is of the clock before."""
from datetime import timedelta

import pytest

from models.database import connection, database, now
from models.operations import Operation
from models.states import Lane, RunState, SnapshotState, WarmImageState
from models.warm_images import WarmImage
from services.deploys.runs import RUNS
from services.hosts.warm_images import BAKES
from services.operations import claims, fair_share, sweeps
from services.operations.claims import GUEST_START
from services.operations.fair_share import SharedLane
from services.snapshots.deletion import DELETIONS
from services.snapshots.disk_upload import UPLOADS
from tasks import contracts, due_sweeps
from tests.functional.operations.test_due_sweeps import run, snapshot
from tests.rows.operations import claim, row
from tests.rows.plans import explain, nodes

LANE = SharedLane("n1", Lane.OPS, 4, 0.75)


def set_back(seconds):
    """Set the clock of all hosts back: what was written is that much later now."""
    past = timedelta(seconds=seconds)
    with connection():
        Operation.update(
            due_at=Operation.due_at + past, announce_at=Operation.announce_at + past,
            deadline_at=Operation.deadline_at + past,
            wait_since=Operation.wait_since + past).execute()


def take(sandbox_id):
    """As a worker does that is told of the operation."""
    with connection():
        return fair_share.claim_fairest(LANE, (sandbox_id, row(sandbox_id).op_seq), 10)


@pytest.fixture
def parked(made, deps):
    """The id of a sandbox whose boot waits for half a minute, the longest pause there is."""
    with connection():
        claims.park(claim(made), 30, GUEST_START)
    deps.queue.sent.clear()
    return made


def test_a_parked_operation_goes_on(deps, parked):
    set_back(3600)
    assert due_sweeps.is_due(contracts.OPERATIONS_SWEEP)
    sweeps.announce_neglected(deps)
    assert [payload["sandbox_id"] for _, _, payload in deps.queue.sent] == [parked]
    assert take(parked).sandbox_id == parked


def test_what_it_waits_for_is_waited_for_from_then_on(parked):
    set_back(3600)
    taken = take(parked)
    assert taken.waited_for_s(GUEST_START) == 0, "and not less than nothing"
    with connection():
        claims.park(taken, 0, GUEST_START)
        Operation.update(wait_since=Operation.wait_since - timedelta(seconds=5)).execute()
    assert 5 <= take(parked).waited_for_s(GUEST_START) < 60


def test_one_that_no_worker_took_is_announced(deps, made):
    deps.queue.sent.clear()
    set_back(3600)
    assert sweeps.announce_neglected(deps) == 1
    assert sweeps.announce_neglected(deps) == 0, "it was told a moment ago"


def test_the_clocks_of_two_hosts_may_be_apart(deps, parked):
    """What one parks is not due to the other at once."""
    set_back(55)
    assert not due_sweeps.is_due(contracts.OPERATIONS_SWEEP)
    sweeps.announce_neglected(deps)
    assert deps.queue.sent == [] and take(parked) is None


WORK = {
    "a disk to upload": (UPLOADS, 300, lambda due: snapshot(
        state=SnapshotState.READY, upload_due_at=due)),
    "a snapshot to delete": (DELETIONS, 300, lambda due: snapshot(
        state=SnapshotState.DELETING, delete_due_at=due)),
    "a warm image to bake": (BAKES, 3600, lambda due: WarmImage.insert(
        node_id="n1", vcpus=1, mem_mb=1024, state=WarmImageState.FAILED,
        announce_at=due).execute()),
    "a deploy": (RUNS, 30, lambda due: run(
        state=RunState.QUEUED, lease_until=None, announce_at=due)),
}


@pytest.mark.parametrize("what", WORK)
def test_work_that_waits_is_announced(deps, what):
    work, longest_s, make = WORK[what]
    with connection():
        make(now() + timedelta(seconds=longest_s + 50))
    assert work.announce_due(deps, 15) == 0
    with connection():
        work.model.update({work.due.name: now() + timedelta(seconds=longest_s + 70)}).execute()
    assert work.announce_due(deps, 15) == 1
    assert work.announce_due(deps, 15) == 0, "it was told a moment ago"


def test_what_is_not_due_is_not_looked_at(deps, made):
    """Many wait for a node that is slow."""
    with connection():
        Operation.insert_many([
            {"sandbox_id": made, "op_seq": number, "kind": "boot", "node_id": "n1",
             "owner_id": "alice", "lane": "ops", "announce_at": now() + timedelta(seconds=20),
             "deadline_at": now() + timedelta(seconds=600)} for number in range(2, 4000)]).execute()
        database.execute_sql("VACUUM ANALYZE operations")
        plan = explain(*sweeps.due_query(now(), 15.0).sql())
    scans = [each for each in nodes(plan) if each["Node Type"] == "Bitmap Index Scan"]
    assert {each["Index Name"] for each in scans} == {"operations_open"}
    assert all("state" in each["Index Cond"] for each in scans), "it reads a part of the index"
    assert sum(each["Actual Rows"] for each in scans) == 1
