"""What the reconciler asks of the driver at each tick, and what of it operators are told."""
import logging
import threading
import time
from dataclasses import replace

import pytest

from bin.stack.free_ports import free_port
from models.database import connection
from models.nodes import Node
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OperationKind, SandboxStatus
from nodeworker.hypervisor.driver import DriverError, MachineSpec, Shape, VmState
from nodeworker.hypervisor.host_facts import DiskPause, UsageReading
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.reconciliation.reconciler import Reconciler
from nodeworker.reconciliation.row_repairs import DISK_FULL
from nodeworker.wiring import NodeDeps
from services.hosts.nodes import NodeFacts, heartbeat
from tests.rows.operations import boot, row


class Host(SimulatedDriver):
    """A host whose disk and packet policy are what a test says; its machines use no CPU."""

    pause: DiskPause | None = None
    policy_changed = False
    slow: bool | None = None

    def read_usage(self, sandbox_id):
        return UsageReading("run", 0, 1000)

    def resume_if_paused(self, sandbox_id):
        return self.pause

    def pace_writes(self):
        return self.slow

    def restore_network(self):
        return self.policy_changed


@pytest.fixture
def host(deps, tmp_path):
    return Host(replace(deps.settings, node_id="n1", node_dir=tmp_path))


@pytest.fixture
def reconciler(deps, host, tmp_path):
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path)
    return Reconciler(NodeDeps(settings, host, deps.queue, None))


def test_a_machine_that_waits_for_the_disk_is_running_and_noted_until_it_goes_on(
        deps, host, reconciler, caplog):
    sandbox_id = boot(deps)
    host.create(MachineSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    reconciler.run()
    host.pause = DiskPause.WAITING
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            reconciler.run()
            assert row(sandbox_id).operator_note == DISK_FULL
    assert len([each for each in caplog.records if "stands still" in each.message]) == 1
    host.pause = DiskPause.RESUMED
    reconciler.run()
    seen = row(sandbox_id)
    assert (seen.status, seen.operator_note) == (SandboxStatus.RUNNING, None)
    host.destroy(sandbox_id)


def test_a_changed_packet_policy_is_told_in_the_log_and_in_the_node_s_row(
        deps, host, reconciler, caplog):
    reconciler.run()
    with connection():
        assert Node.get_by_id("n1").policy_restored_at is None
    host.policy_changed = True
    with caplog.at_level(logging.ERROR):
        reconciler.run()
    assert "packet policy of this host was changed" in caplog.text
    with connection():
        assert Node.get_by_id("n1").policy_restored_at is not None


def test_that_guests_write_slowly_and_freely_again_is_told(host, reconciler, caplog):
    for slow, said in ((None, ""), (True, "almost full"), (False, "has room again")):
        host.slow = slow
        caplog.clear()
        reconciler.run()
        assert said in caplog.text and bool(said) == ("disk of this host" in caplog.text)


def test_a_machine_whose_row_needs_it_again_is_not_removed_as_an_orphan(
        deps, host, reconciler, tmp_path, monkeypatch):
    """As after a restored backup: the row says that it runs between the look and the removal."""
    sandbox_id = boot(deps)
    host.create(MachineSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    write_status(sandbox_id, SandboxStatus.STOPPED)
    fault = tmp_path / "fault"
    fault.write_text("reconcile.orphan_seen sleep:1")
    monkeypatch.setenv("SVC_FAULT_FILE", str(fault))
    clear_up_at_once(reconciler, monkeypatch)
    running = threading.Thread(target=reconciler.run)
    running.start()
    while not fault.with_name("fault.done").exists():
        time.sleep(0.001)
    write_status(sandbox_id, SandboxStatus.RUNNING)
    running.join()
    assert host.inspect(sandbox_id) is VmState.RUNNING
    write_status(sandbox_id, SandboxStatus.STOPPED)
    reconciler.run()
    assert host.inspect(sandbox_id) is None


def test_a_look_that_an_operation_has_overtaken_begins_no_repair(
        deps, host, reconciler, monkeypatch):
    """The host was listed while the wake was under way, and the row read after it."""
    sandbox_id = boot(deps)
    host.create(MachineSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    monkeypatch.setattr(host, "list_sandboxes", lambda: {sandbox_id: VmState.PARTIAL})
    reconciler.run()
    assert row(sandbox_id).task is None
    monkeypatch.setattr(host, "inspect", lambda sandbox_id: VmState.PARTIAL)
    reconciler.run()
    assert row(sandbox_id).task == OperationKind.WAKE
    host.destroy(sandbox_id)


def test_captures_that_are_done_with_go_whatever_their_number(deps, host, reconciler, monkeypatch):
    """What no row is of stays once it is too much; a machine that cannot be removed is in the way
    of nothing."""
    clear_up_at_once(reconciler, monkeypatch)
    host.create(MachineSpec("stuck", Shape(1, 1024), "token-0123456789", free_port()))
    monkeypatch.setattr(host, "destroy", failing)
    many = reconciler._deps.settings.orphan_brake + 1
    known, unknown = ([f"{kind}{n}" for n in range(many)] for kind in ("known", "unknown"))
    for each in known:
        with connection():
            Snapshot.create(id=each, owner="alice", node_id="n1", source_sandbox_id="source",
                            state="deleted", vcpus=1, mem_mb=1024, cwd="/home/user")
    for each in (*known, *unknown):
        directory = host.node.snapshots / each
        directory.mkdir()
        (directory / "snapshot.json").write_text("{}")
    for _ in range(2):
        reconciler.run()
    assert host.list_snapshots() == set(unknown)
    monkeypatch.undo()
    host.destroy("stuck")


def test_machines_whose_row_is_stopped_go_whatever_their_number(
        deps, host, reconciler, monkeypatch):
    """As those of boots that were given up while their node was cut off; what no row is of, or a
    row of another node, stays once it is too much."""
    clear_up_at_once(reconciler, monkeypatch)
    many = reconciler._deps.settings.orphan_brake + 1
    stopped, unknown, elsewhere = ([f"{kind}{n}" for n in range(many)]
                                   for kind in ("stopped", "unknown", "elsewhere"))
    heartbeat(NodeFacts("n2", "127.0.0.1", 64, 4096, 20000, 20099, {}))
    for node_id, ids in (("n1", stopped), ("n2", elsewhere)):
        with connection():
            for each in ids:
                Sandbox.create(id=each, owner="alice", node_id=node_id, status="stopped", vcpus=1,
                               mem_mb=1024, agent_port=1, agent_token="token",
                               idle_timeout_s=600)
    there = {*stopped, *unknown, *elsewhere}
    monkeypatch.setattr(host, "list_sandboxes", lambda: dict.fromkeys(there, VmState.RUNNING))
    monkeypatch.setattr(host, "destroy", there.remove)
    for _ in range(2):
        reconciler.run()
    assert there == {*unknown, *elsewhere}


def clear_up_at_once(reconciler, monkeypatch):
    monkeypatch.setattr(reconciler._seen, "_grace_s", 0)


def failing(sandbox_id):
    raise DriverError("the machine does not end")


def write_status(sandbox_id, status):
    with connection():
        Sandbox.update(status=status, task=None).where(Sandbox.id == sandbox_id).execute()
