"""Runs leave nodes that are no place for them (contract, Deploy rule 8): rows under two nodes that
the test plays."""
import dataclasses
from datetime import timedelta

import pytest

from models.database import connection, now
from models.deploys import DeployPrefix, DeployRun
from models.nodes import Node
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import RunStep, SnapshotKind
from services.deploys import builders, failed_runs, logs, publishing, runs, version_prefixes
from services.deploys.sweeps import overdue, takeover
from services.deploys.sweeps.takeover import take_over
from services.errors import Conflict
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations.claims import LeaseLost
from services.snapshots import deletion, needed_on_node
from tasks import contracts, control
from tests.functional.deploys.conftest import NODE, app
from tests.functional.deploys.conftest import prefixes as kept

PEER = dataclasses.replace(NODE, id="n2", host_port_low=20100, host_port_high=20199)
FULL = NodeFacts("n1", "127.0.0.1", 64, 65536, 20000, 20099, {}, disk_mb=9000, disk_free_mb=100,
                 disk_floor_mb=4096)


def silent():
    Node.update(heartbeat_at=now() - timedelta(hours=1)).where(Node.id == "n1").execute()


def draining():
    Node.update(accepting=False).where(Node.id == "n1").execute()


def without_its_lane():
    Node.update(lanes=["bulk", "ctl", "ops"]).where(Node.id == "n1").execute()


NO_ARCHIVE = ["bulk", "ctl", "deploy", "ops"]
UNFIT = [silent, draining, without_its_lane, lambda: heartbeat(FULL)]


@pytest.fixture
def stored(snapshot):
    """The snapshot is in the object store, and there is a peer."""
    heartbeat(PEER)
    with connection():
        Snapshot.update(uploaded_to_store=True, image_key="simulated").execute()


def run():
    with connection():
        return DeployRun.select().order_by(DeployRun.id.desc()).get()


def nodes_of(moves):
    return [(move.slug, move.source, move.target) for move in moves]


@pytest.mark.parametrize("becomes", UNFIT, ids=["silent", "draining", "no lane", "full"])
def test_a_healthy_peer_gets_the_run_and_builds_anew(deps, ask, take, stored, becomes):
    ask()
    late = take()
    builder = builders.start(deps, late)
    logs.add(late.id, 0, b"built on n1")
    assert take_over(deps) == [], "its node is well"
    with connection():
        becomes()
        assert take_over(deps) == [], "somebody is at it"
        DeployRun.update(lease_until=now()).execute()
    deps.queue.sent.clear()
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")] and take_over(deps) == []
    with connection():
        row = run()
        assert (row.node_id, row.step, row.builder_sandbox_id, row.attempts) == (
            "n2", "build", None, 0)
        assert row.operator_error.startswith("Moved from node n1: Node n1 ")
        assert Sandbox.get_by_id(builder).task == "stop", "once its node is there"
        assert runs.claim(row.id, "n1", "w", 10.0) is None
        for write in (lambda: runs.renew(late, 9.0), lambda: runs.give_back(late, 0),
                      lambda: publishing.publish_static(deps, late)):
            with pytest.raises(LeaseLost):
                write()
        claimed = runs.claim(row.id, "n2", "w", 10.0)
        assert claimed.epoch > late.epoch
        assert needed_on_node.list_needed("n2") == {"snap1"}, "as long as it builds from it"
    assert logs.read(row) == "" and logs.size(row.id) == 0, "another builder begins its own"
    again = builders.start(deps, claimed)
    with connection():
        assert Sandbox.get_by_id(again).node_id == "n2"


def test_a_builder_that_is_noted_until_its_run_moves_is_stopped(
        deps, ask, take, stored, monkeypatch):
    """By a worker whose lease is over, after the sweep has read the run."""
    ask()
    late, made, decide = take(lease_s=-1), [], takeover._decide

    def start_first(hosts, row):
        made.append(builders.start(deps, late))
        silent()
        return decide(hosts, row)

    monkeypatch.setattr(takeover, "_decide", start_first)
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")]
    with connection():
        assert run().builder_sandbox_id is None and Sandbox.get_by_id(*made).task == "stop"


def test_a_builder_that_is_given_up_takes_its_log_with_it(deps, ask, take):
    ask()
    claimed = take()
    builder = builders.start(deps, claimed)
    logs.add(claimed.id, 0, b"half a li")
    builders.forget(deps, claimed)
    assert run().builder_sandbox_id is None and logs.read(run()) == ""
    with connection():
        assert Sandbox.get_by_id(builder).task == "stop"
    with pytest.raises(LeaseLost):
        builders.forget(deps, dataclasses.replace(claimed, epoch=claimed.epoch - 1))


def test_what_is_not_in_the_store_waits_for_its_node_and_says_so(deps, ask, take, stored):
    with connection():
        Snapshot.update(uploaded_to_store=False).execute()
    ask()
    with connection():
        silent()
        assert take_over(deps) == []
        said = run().operator_error
        assert said == ("Node n1 does not report that it works at present. Its snapshot is on node"
                        " n1 alone, not in the object store yet.")
        DeployRun.update(deadline_at=now()).execute()
    assert overdue.give_up(deps) == ["hello"]
    assert (run().error, run().operator_error) == ("The deploy did not finish in time.", said)


def test_a_step_of_the_sweep_that_fails_keeps_none_of_the_others_from_their_work(
        deps, ask, monkeypatch, caplog):
    def fail(_deps):
        raise KeyError("medum")

    ask()
    monkeypatch.setattr(control.takeover, "take_over", fail)
    monkeypatch.setattr(control, "get_deps", lambda: deps)
    monkeypatch.setattr(control, "get_queue", lambda: deps.queue)
    with connection():
        DeployRun.update(deadline_at=now()).execute()
    control.deploys_sweep()
    assert run().state == "failed" and "the sweep goes on" in caplog.text


def test_a_node_whose_lane_works_is_given_time_to_remove_a_prefix(deps, monkeypatch):
    heartbeat(NODE, ["ctl", "deploy", "ops"])
    heartbeat(PEER, ["bulk", "ctl"])
    monkeypatch.setattr(control, "get_deps", lambda: deps)
    monkeypatch.setattr(control, "get_queue", lambda: deps.queue)
    with connection():
        gone = {version_prefixes.keep("app_gone", version, 1) for version in range(8)}
        version_prefixes.collect_all("app_gone")
    control.deploys_sweep()
    assert {(queue, payload["prefix"]) for queue, job, payload in deps.queue.sent
            if job == contracts.REMOVE_PREFIX} == {("node.n2.bulk", prefix) for prefix in gone}
    with connection():
        assert DeployPrefix.get().due_at > now() + timedelta(seconds=50)


def test_without_a_peer_with_room_it_waits_too(deps, ask, stored):
    ask()
    with connection():
        silent()
        Node.update(vcpus=0).where(Node.id == "n2").execute()
        assert take_over(deps) == []
    assert run().operator_error.endswith(
        "No other node has room for a builder and boots it at present.")


def test_a_peer_needs_the_lane_that_boots_a_builder(deps, ask, stored):
    ask()
    with connection():
        silent()
        Node.update(lanes=NO_ARCHIVE).where(Node.id == "n2").execute()
        assert take_over(deps) == []
        assert run().operator_error.endswith("has room for a builder and boots it at present.")
        Node.update(lanes=None).where(Node.id == "n2").execute()
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")]
    heartbeat(dataclasses.replace(PEER, id="n3", host_port_low=20200, host_port_high=20299))
    with connection():
        Node.update(lanes=NO_ARCHIVE).where(Node.id == "n2").execute()
    assert nodes_of(take_over(deps)) == [("hello", "n2", "n3")], "that lane has died since"


def test_one_whose_builder_has_begun_needs_that_lane_no_more(deps, ask, take, stored):
    ask()
    with connection():
        silent()
    take_over(deps)
    builders.start(deps, take(lease_s=-1))
    heartbeat(dataclasses.replace(PEER, id="n3", host_port_low=20200, host_port_high=20299))
    with connection():
        Node.update(lanes=NO_ARCHIVE).where(Node.id == "n2").execute()
    assert take_over(deps) == []


def test_an_archive_needs_no_node_of_its_own(deps, ask, stored):
    with connection():
        Snapshot.update(kind=SnapshotKind.FILES_ONLY).execute()
    ask()
    with connection():
        DeployRun.update(node_id="n1").execute()
        draining()
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")]
    with connection():
        Node.update(accepting=True).execute()
    assert take_over(deps) == [], "one is as good as the other"


def test_a_run_that_was_not_begun_returns_to_the_node_of_its_snapshot(deps, ask, stored):
    ask()
    with connection():
        silent()
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")]
    heartbeat(NODE)
    assert nodes_of(take_over(deps)) == [("hello", "n2", "n1")]


def test_one_that_was_begun_stays_where_it_is(deps, ask, take, stored):
    ask()
    with connection():
        silent()
    take_over(deps)
    builders.start(deps, take(lease_s=-1))
    heartbeat(NODE)
    assert take_over(deps) == []


def test_what_is_stored_is_published_by_the_peer(deps, ask, take, stored):
    ask()
    first = take()
    builders.start(deps, first)
    logs.add(first.id, 0, b"built on n1")
    with connection():
        prefix = version_prefixes.keep(first.app_id, first.version, first.epoch)
        late = runs.advance(first, RunStep.STAGE, stored_epoch=first.epoch)
        silent()
        DeployRun.update(lease_until=now()).execute()
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")]
    with connection():
        claimed = take()
        assert (claimed.step, claimed.stored_epoch) == (RunStep.STAGE, first.epoch)
        with pytest.raises(LeaseLost):
            publishing.publish_static(deps, late)
        publishing.publish_static(deps, claimed)
        assert take_over(deps) == []
    assert (app()["live_version"], app()["live_epoch"]) == (1, first.epoch)
    assert kept() == {prefix: False} and logs.read(run()) == "built on n1"


def test_what_is_stored_goes_to_a_peer_that_has_no_room_for_a_builder(deps, ask, take, stored):
    ask()
    first = take()
    builders.start(deps, first)
    with connection():
        version_prefixes.keep(first.app_id, first.version, first.epoch)
        runs.advance(first, RunStep.STAGE, stored_epoch=first.epoch)
        silent()
        DeployRun.update(lease_until=now()).execute()
        Node.update(vcpus=0, lanes=["bulk", "ctl", "ops"]).where(Node.id == "n2").execute()
        assert take_over(deps) == []
        assert run().operator_error.endswith("No other node works on deploys at present.")
        Node.update(lanes=NO_ARCHIVE).where(Node.id == "n2").execute()
    heartbeat(dataclasses.replace(FULL, id="n3"))
    assert nodes_of(take_over(deps)) == [("hello", "n1", "n2")], "n3 is no place for anything"


def test_a_run_that_waits_for_room_does_not_use_up_its_attempts(ask, take, stored):
    ask()
    with connection():
        runs.give_back(take(), 0, "no room", counts=False)
    assert (run().attempts, run().operator_error) == (0, "no room")


def test_a_snapshot_is_kept_until_the_deploy_of_it_has_ended(deps, ask, take, snapshot):
    weekly = dataclasses.replace(deps, settings=dataclasses.replace(deps.settings, snapshot_days=7))
    ask()
    with connection():
        Snapshot.update(created_at=now() - timedelta(days=8)).execute()
    with pytest.raises(Conflict, match="a deploy of hello is under way"):
        deletion.delete(deps, snapshot)
    assert deletion.expire(weekly) == 0
    with connection():
        failed_runs.fail(deps, take(), "No.")
    assert deletion.expire(weekly) == 1
