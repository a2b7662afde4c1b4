"""When rows without files on their node are ended, with the simulated driver in this process and a
real Postgres."""

from dataclasses import replace

import pytest

from bin.stack.free_ports import free_port
from config.settings import Settings
from models.database import connection
from models.ids import new_id
from models.sandboxes import Sandbox
from models.states import Lane, Plan, SandboxStatus
from models.users import User
from nodeworker import node_directory, startup
from nodeworker.disks import directory_id
from nodeworker.hypervisor.driver import MachineSpec, Shape
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.reconciliation.reconciler import Reconciler
from nodeworker.wiring import NodeDeps
from services.errors import Unavailable
from services.hosts import nodes
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations import claims
from services.protocols import Deps
from services.sandboxes import create, lifecycle
from services.sandboxes.caller import Caller
from services.sandboxes.outcomes import Outcome, finish
from services.sandboxes.requests import CreateRequest, LaunchOptions
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue

HIBERNATED, STOPPED = SandboxStatus.HIBERNATED, SandboxStatus.STOPPED


@pytest.fixture(scope="module", autouse=True)
def base(fresh_rows):
    """A database of its own."""


@pytest.fixture
def node(tmp_path):
    """A reconciler, told by `patient` whether the grace period is over."""
    with connection():
        Sandbox.update(status=STOPPED, task=None).execute()
    heartbeat(NodeFacts("n1", "127.0.0.1", 10_000, 10_000_000, 20000, 29999, {}))
    nodes.forget_directory("n1")
    settings = Settings(node_id="n1", node_dir=tmp_path, orphan_grace_s=0.0, orphan_brake=2,
                        operation_wait_s=0.05)
    deps = NodeDeps(settings, SimulatedDriver(settings), ListQueue(), None)
    node_directory.claim(deps)
    return Reconciler(deps)


def patient(node, grace_s):
    node._seen._grace_s = grace_s


def asleep(count=1):
    """Rows of hibernated sandboxes that have never been on this host."""
    deps = Deps(Settings(operation_wait_s=0.05, readiness_wait_s=0.0), ListQueue(), no_guest)
    with connection():
        alice = User.create(id=new_id("usr"), email=f"{new_id()}@example.test", password_hash="x",
                            plan=Plan.LEGACY_PRO)
    request = CreateRequest(LaunchOptions())
    made = [create.create(deps, Caller(alice), request).id for _ in range(count)]
    for sandbox_id in made:
        with connection():
            claimed = claims.claim(sandbox_id, 1, "n1/ops", 10.0)
            finish(claimed, Outcome(True, HIBERNATED))
    return made, deps, alice


def statuses(made):
    with connection():
        return [SandboxStatus(Sandbox.get_by_id(sandbox_id).status) for sandbox_id in made]


def test_it_has_to_be_seen_for_the_whole_grace_period(node):
    made, *_ = asleep()
    patient(node, 3600.0)
    node.run()
    node.run()
    assert statuses(made) == [HIBERNATED]
    patient(node, 0.0)
    node.run()
    assert statuses(made) == [STOPPED]
    assert node._deps.queue.sent == [], "the node is told of a stop that is finished"


def test_no_row_is_ended_while_many_look_lost_at_once(node):
    made, *_ = asleep(3)
    node.run()
    node.run()
    assert statuses(made) == [HIBERNATED] * 3
    with connection():
        Sandbox.update(status=STOPPED).where(Sandbox.id == made[0]).execute()
    node.run()
    assert statuses(made) == [STOPPED] * 3


def test_a_brake_of_0_ends_no_row(node):
    """What an operator sets after a restore (docs/operations.md)."""
    made, *_ = asleep()
    node._seen._brake = 0
    node.run()
    node.run()
    assert statuses(made) == [HIBERNATED]


def test_a_disk_that_is_not_mounted_ends_nothing_and_keeps_the_node_from_starting(node, tmp_path):
    made, *_ = asleep()
    away = directory_id.NAME, "away"
    (tmp_path / away[0]).rename(tmp_path / away[1])
    node.run()
    node.run()
    assert statuses(made) == [HIBERNATED]
    with pytest.raises(node_directory.ForeignDirectory, match="Mount its disk"):
        node_directory.check(node._deps)
    (tmp_path / away[1]).rename(tmp_path / away[0])
    node_directory.check(node._deps)
    node.run()
    assert statuses(made) == [STOPPED]


@pytest.mark.parametrize("lane", [Lane.CTL, Lane.OPS, Lane.BULK])
def test_a_node_of_another_name_ends_and_removes_nothing_of_what_it_finds(
        node, tmp_path, monkeypatch, lane):
    driver = node._deps.driver
    driver.create(MachineSpec(new_id(), Shape(1, 1024), "token-0123456789", free_port()))
    found = driver.list_sandboxes()
    settings = replace(node._deps.settings, node_id="n2")
    renamed = replace(node._deps, settings=settings)
    monkeypatch.setattr(driver, "reclaim", lambda: pytest.fail("its machines look ended"))
    with pytest.raises(node_directory.ForeignDirectory, match="SVC_NODE_ID"):
        startup.begin(renamed, lane)
    assert driver.list_sandboxes() == found and nodes.find_directory_id("n2") is None
    (tmp_path / directory_id.NAME).unlink()
    node_directory.check(renamed)
    driver.destroy(*found)


def test_a_node_whose_disk_is_lost_may_be_told_to_begin_anew(node, tmp_path):
    made, *_ = asleep()
    (tmp_path / directory_id.NAME).unlink()
    assert nodes.forget_directory("n1")
    node_directory.check(node._deps)
    node_directory.claim(node._deps)
    node.run()
    assert statuses(made) == [STOPPED]


def test_an_operation_under_way_is_left_to_itself(node):
    made, deps, alice = asleep()
    with pytest.raises(Unavailable):
        lifecycle.wake(deps, Caller(alice), made[0])
    node.run()
    assert statuses(made) == [HIBERNATED]


def test_one_whose_files_are_back_is_left_alone(node):
    made, *_ = asleep()
    driver = node._deps.driver
    spec = MachineSpec(made[0], Shape(1, 1024), "token-0123456789", free_port())

    def back(found):
        """The host was listed before, and the row is looked at after, the files came back."""
        driver.create(spec)
        return original(found)

    original, node._stop_lost = node._stop_lost, back
    try:
        node.run()
        assert statuses(made) == [HIBERNATED]
    finally:
        driver.destroy(made[0])
