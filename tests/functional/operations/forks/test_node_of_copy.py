"""A copy of a snapshot is made on the node that holds it, or, once its disk is in the store, on
another one that can boot from it."""
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from nodeworker.snapshots.remove_files import remove_unneeded
from services.errors import Unavailable, WrongNode
from services.hosts import nodes
from services.hosts.nodes import NodeFacts, heartbeat
from services.sandboxes import create
from services.sandboxes.copies import forks
from services.sandboxes.outcomes import Outcome, finish
from services.sandboxes.requests import LaunchOptions
from services.snapshots import needed_on_node
from services.templates import registry
from services.templates.registry import Release
from tests.rows.operations import CREATE, caller, claim

HOLDER = NodeFacts("n1", "127.0.0.1", 64, 4096, 20000, 20099, {})
PEER = NodeFacts("n2", "127.0.0.1", 64, 1 << 20, 20100, 20199, {}, images=("build",))


@pytest.fixture
def taken(source):
    """The id of a snapshot on n1 whose disk is in the store; n2 has its image."""
    heartbeat(PEER)
    with connection():
        sandbox = Sandbox.get_by_id(source)
        return Snapshot.create(
            id="snap1", owner=sandbox.owner_id, node_id="n1", source_sandbox_id=source, cwd="/root",
            state=SnapshotState.READY, vcpus=sandbox.vcpus, mem_mb=sandbox.mem_mb,
            uploaded_to_store=True, image_key="build").id


def change(model, which, **columns):
    with connection():
        model.update(columns).where(model.id == which).execute()


def silent():
    change(Node, "n1", heartbeat_at=now() - timedelta(hours=1))


def closed():
    change(Node, "n1", accepting=False)


def draining():
    nodes.begin_draining("n1", 3600)


def without_its_lane():
    change(Node, "n2", lanes=["bulk", "ctl", "deploy", "ops"])


def full():
    change(Node, "n1", mem_mb=0)


def not_in_the_store():
    change(Snapshot, "snap1", uploaded_to_store=False)


def fork(deps, pinned=None):
    return forks.of_snapshot(deps, caller("alice", pinned), "snap1", LaunchOptions())


def create_from_template(deps, pinned=None):
    owner = caller("alice")
    registry.publish(owner.owner, "kit", Release("snap1"))
    return create.create(deps, caller("alice", pinned), replace(CREATE, template_id="kit"))


COPIES = pytest.mark.parametrize("copy", [fork, create_from_template])


@COPIES
def test_it_is_made_where_the_memory_is(deps, taken, copy):
    made = copy(deps)
    assert made.node_id == "n1"
    with connection():
        assert Operation.get(Operation.sandbox_id == made.id).lane == "ops"


@COPIES
@pytest.mark.parametrize("becomes", [silent, closed, draining])
def test_it_is_made_elsewhere_when_the_holder_takes_none(deps, taken, copy, becomes):
    becomes()
    made = copy(deps)
    assert made.node_id == "n2"
    with connection():
        booting = Operation.get(Operation.sandbox_id == made.id)
        assert booting.lane == "archive", "its disk has to be fetched"
        assert booting.deadline_at - booting.created_at > timedelta(
            seconds=deps.settings.archive_timeout_s)
        assert needed_on_node.list_needed("n2") == {taken}, "as long as it boots"
        claimed = claim(made.id)
        assert needed_on_node.find_origin(claimed).is_elsewhere
        finish(claimed, Outcome(True, SandboxStatus.RUNNING))
        assert needed_on_node.list_needed("n2") == set()
        assert needed_on_node.list_needed("n1") == {taken}


def test_a_fork_waits_for_room_beside_the_memory_and_a_template_does_not(deps, taken):
    full()
    with pytest.raises(Unavailable, match="node n1 may promise .* With X-Svc-Node another node"):
        fork(deps)
    assert create_from_template(deps).node_id == "n2"
    change(Node, "n2", accepting=False)
    for copy in (fork, create_from_template):
        with pytest.raises(Unavailable, match="short.$"):
            copy(deps)


@COPIES
@pytest.mark.parametrize("pinned", ["n1", "n2"])
def test_a_pin_decides(deps, taken, copy, pinned):
    assert copy(deps, pinned).node_id == pinned
    if pinned == "n1":
        closed()
        with pytest.raises(Unavailable, match="n1"):
            copy(deps, pinned)


@COPIES
def test_what_is_not_in_the_store_is_on_its_node_alone(deps, taken, copy):
    not_in_the_store()
    with pytest.raises(WrongNode, match="on node n1, not on n2, and not in the object store yet"):
        copy(deps, "n2")
    silent()
    with pytest.raises(Unavailable, match="n1 does not report"):
        copy(deps)


@COPIES
def test_another_node_must_have_the_lane_that_fetches_it(deps, taken, copy):
    without_its_lane()
    with pytest.raises(Unavailable, match="n2 does not report"):
        copy(deps, "n2")
    closed()
    with pytest.raises(Unavailable, match="n1 takes no sandboxes"):
        copy(deps)


@COPIES
def test_nodes_that_have_the_image_come_first(deps, taken, copy):
    with pytest.raises(WrongNode, match="There is no node n3"):
        copy(deps, "n3")
    closed()
    heartbeat(replace(PEER, images=("another build",)))
    smaller = replace(PEER, id="n3", mem_mb=4096, host_port_low=20200, host_port_high=20299)
    heartbeat(smaller)
    assert copy(deps).node_id == "n3"
    heartbeat(replace(smaller, mem_mb=1))
    assert copy(deps).node_id == "n2", "which fetches it"
    change(Node, "n2", accepting=False)
    with pytest.raises(Unavailable, match="n1 takes no sandboxes"):
        copy(deps)


def test_what_a_boot_has_begun_to_need_is_not_removed(deps, taken, node, monkeypatch):
    removed = []
    monkeypatch.setattr(node.driver, "delete_snapshot", removed.append)
    there = replace(node, settings=replace(node.settings, node_id="n2"))
    made = fork(deps, "n2")
    remove_unneeded(there, taken)
    assert removed == []
    with connection():
        finish(claim(made.id), Outcome(True, SandboxStatus.RUNNING))
    remove_unneeded(there, taken)
    assert removed == [taken]
    with connection():
        assert Snapshot.get_by_id(taken).state == SnapshotState.READY, "only the copy is gone"
