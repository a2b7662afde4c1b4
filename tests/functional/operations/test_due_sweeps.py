"""Beat sends the tick of a sweep if the sweep would find something, and only then."""
from datetime import timedelta

import pytest

from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun, RelayKey, RetiredRuntime
from models.events import Delivery, Event
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from models.snapshots import Snapshot
from models.states import DeliveryState, RunState, SnapshotState, WarmImageState
from models.warm_images import WarmImage
from services.deploys.runs import RUNS
from services.hosts.nodes import NodeFacts, heartbeat
from services.hosts.warm_images import BAKES
from services.sandboxes import create
from services.snapshots.deletion import DELETIONS
from services.snapshots.disk_upload import UPLOADS
from tasks import contracts, due_sweeps
from tests.rows.operations import CREATE, boot, caller, claim

JOBS = (contracts.IDLE_SWEEP, contracts.OPERATIONS_SWEEP, contracts.DEPLOYS_SWEEP,
        contracts.SAMPLE_ALL, contracts.WEBHOOKS_SWEEP)
NODE = NodeFacts("n1", "127.0.0.1", 64, 4096, 20000, 20099, {})


def ago(seconds=1.0):
    return now() - timedelta(seconds=seconds)


@pytest.fixture
def nothing(deps):
    """Users and a node; every other table is empty."""
    with connection():
        tables = database.execute_sql(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN"
            " ('users', 'nodes', 'schema_migrations')").fetchall()
        database.execute_sql("TRUNCATE " + ", ".join(name for name, in tables))


@pytest.fixture
def sleeping(deps, nothing):
    """A sandbox with which nothing is due."""
    sandbox_id = boot(deps)
    with connection():
        Sandbox.update(status="hibernated").execute()
        Event.update(routed_at=now()).execute()
    assert due() == set()
    return sandbox_id


def due():
    """The sweeps that would be sent now."""
    return {job for job in JOBS if due_sweeps.is_due(job)}


def snapshot(**columns):
    Snapshot.create(id="snap", owner_id="alice", node_id="n1", cwd="/home/user", vcpus=1,
                    mem_mb=1024, source_sandbox_id="box", **columns)


def app(**columns):
    Deploy.insert(slug="hello", app_id="app", owner_id="alice", **columns).execute()


def run(**columns):
    DeployRun.create(slug="hello", app_id="app", owner_id="alice", version=1, run_id="run",
                     snapshot_id="snap", node_id="n1", **{"deadline_at": ago(-60)} | columns)


def event(**columns):
    return Event.create(id="event", type="x", owner_id="alice", subject="box", occurred_at=now(),
                        body="{}", **columns)


def delivery(state, **columns):
    Delivery.create(event=event(routed_at=now()), receiver="r", state=state,
                    next_attempt_at=ago(-20), **columns)


MADE_DUE = {
    "a disk to upload": (contracts.OPERATIONS_SWEEP, lambda: snapshot(
        state=SnapshotState.READY, upload_due_at=ago())),
    "a snapshot to delete": (contracts.OPERATIONS_SWEEP, lambda: snapshot(
        state=SnapshotState.DELETING, delete_due_at=ago())),
    "a warm image to bake": (contracts.OPERATIONS_SWEEP, lambda: WarmImage.insert(
        node_id="n1", vcpus=1, mem_mb=1024, state=WarmImageState.FAILED,
        announce_at=ago()).execute()),
    "a run that nobody works on": (contracts.DEPLOYS_SWEEP, run),
    "a run that nobody goes on with": (contracts.DEPLOYS_SWEEP, lambda: run(
        state=RunState.RUNNING, lease_until=ago())),
    "a run that was not taken": (contracts.DEPLOYS_SWEEP, lambda: run(
        lease_until=ago(-60), announce_at=ago())),
    "a fence that is over": (contracts.DEPLOYS_SWEEP, lambda: app(fence_until=ago())),
    "a version N-1 whose time is over": (contracts.DEPLOYS_SWEEP, lambda: app(
        collect_previous_at=ago())),
    "a runtime that serves no more": (contracts.DEPLOYS_SWEEP, lambda: RetiredRuntime.create(
        sandbox_id=Sandbox.get().id, stop_at=ago(-60))),
    "a key to the store": (contracts.DEPLOYS_SWEEP, lambda: RelayKey.create(
        key_id="key", sandbox_id=Sandbox.get().id, prefix="apps/app/v1-1/db/")),
    "a prefix to remove": (contracts.DEPLOYS_SWEEP, lambda: DeployPrefix.create(
        prefix="apps/app/v1-1/", app_id="app", version=1, due_at=ago())),
    "an event": (contracts.WEBHOOKS_SWEEP, event),
    "a delivery that waits": (contracts.WEBHOOKS_SWEEP, lambda: delivery(DeliveryState.PENDING)),
    "a delivery under way": (contracts.WEBHOOKS_SWEEP, lambda: delivery(
        DeliveryState.SENDING, claimed_by="w", lease_until=ago(-20))),
}
NOT_YET = {
    "a disk to upload later": lambda: snapshot(state=SnapshotState.READY, upload_due_at=ago(-60)),
    "a run in a worker's hands": lambda: run(state=RunState.RUNNING, lease_until=ago(-60)),
    "a run that is over": lambda: run(state=RunState.SUCCEEDED),
    "a fence": lambda: app(fence_until=ago(-60)),
    "a version N-1": lambda: app(collect_previous_at=ago(-60)),
    "a prefix that is used": lambda: DeployPrefix.create(
        prefix="apps/app/v1-1/", app_id="app", version=1),
    "what was delivered": lambda: delivery(DeliveryState.DELIVERED),
}


@pytest.mark.parametrize("what", MADE_DUE)
def test_one_tick_is_sent_for(sleeping, what):
    job, make = MADE_DUE[what]
    with connection():
        make()
    assert due() == {job}


@pytest.mark.parametrize("what", NOT_YET)
def test_no_tick_is_sent_for(sleeping, what):
    with connection():
        NOT_YET[what]()
    assert due() == set()


def test_what_runs_is_counted_and_put_to_sleep_once_it_is_idle(deps, nothing):
    boot(deps)
    with connection():
        Event.update(routed_at=now()).execute()
    assert due() == {contracts.SAMPLE_ALL}
    with connection():
        Sandbox.update(idle_at=ago()).execute()
    assert due() == {contracts.SAMPLE_ALL, contracts.IDLE_SWEEP}
    with connection():
        Activity.create(sandbox_id=Sandbox.get().id, expires_at=ago(-60))
    assert due() == {contracts.SAMPLE_ALL}


def test_an_operation_is_looked_after_if_nobody_takes_it_or_goes_on_with_it(deps, nothing):
    made = create.create(deps, caller("alice"), CREATE).id
    with connection():
        Event.update(routed_at=now()).execute()
        Operation.update(announce_at=ago(-60)).execute()
    assert due() == set()
    with connection():
        Operation.update(announce_at=ago()).execute()
    assert due() == {contracts.OPERATIONS_SWEEP}
    claim(made, lease_s=60)
    assert due() == set()
    with connection():
        Operation.update(lease_until=ago()).execute()
    assert due() == {contracts.OPERATIONS_SWEEP}
    with connection():
        Operation.update(lease_until=None, deadline_at=ago()).execute()
    assert due() == {contracts.OPERATIONS_SWEEP}


def test_no_tick_is_sent_for_what_only_a_silent_node_could_do(deps, nothing):
    idle, neglected = boot(deps), create.create(deps, caller("alice"), CREATE).id
    with connection():
        Event.update(routed_at=now()).execute()
        Sandbox.update(idle_at=ago()).where(Sandbox.id == idle).execute()
        Operation.update(announce_at=ago()).where(Operation.sandbox_id == neglected).execute()
    assert due() == {contracts.SAMPLE_ALL, contracts.IDLE_SWEEP, contracts.OPERATIONS_SWEEP}
    with connection():
        Node.update(heartbeat_at=ago(3600)).execute()
    assert due() == {contracts.SAMPLE_ALL}


WORK = {
    "a disk to upload": UPLOADS, "a snapshot to delete": DELETIONS, "a warm image to bake": BAKES,
    "a run that was not taken": RUNS,
}


@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize("deaf", ["node", "lane"])
def test_work_waits_for_its_node_and_lane(deps, sleeping, what, deaf):
    """A message to them would lie in their queue, and one more each time it is due."""
    (job, make), work = MADE_DUE[what], WORK[what]
    heartbeat(NODE, lanes=["ctl"])
    with connection():
        make()
        if deaf == "node":
            Node.update(lanes=None, heartbeat_at=ago(3600)).execute()
    deps.queue.sent.clear()
    assert work.announce_due(deps, 15) == 0 and not deps.queue.sent and due() == set()
    heartbeat(NODE, lanes=["ctl", work.lane])
    assert due() == {job} and work.announce_due(deps, 15) == 1
    assert [queue for queue, *_ in deps.queue.sent] == [f"node.n1.{work.lane.value}"]


def test_other_ticks_are_always_sent_and_all_while_the_database_is_away(nothing, away):
    assert due_sweeps.is_due(contracts.EXPIRY_SWEEP)
    with away():
        assert due() == set(JOBS)
    assert due() == set()
