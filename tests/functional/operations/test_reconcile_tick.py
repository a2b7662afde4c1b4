"""What the reconciler asks of the driver at each tick, and what of it operators are told."""
import logging
from dataclasses import replace

import pytest

from models.database import connection
from models.nodes import Node
from models.states import SandboxStatus
from nodeworker.hypervisor.driver import DiskPause, LaunchSpec, Shape
from nodeworker.hypervisor.facts import UsageReading
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.reconcile import DISK_FULL, Reconciler
from nodeworker.wiring import NodeDeps
from tests.rows.operations import boot, row


class Host(SimulatedDriver):
    """A host whose disk and packet policy are what a test says; its machines use no CPU."""

    pause: DiskPause | None = None
    policy_changed = False

    def read_usage(self, sandbox_id):
        return UsageReading("run", 0, 1000)

    def resume_if_paused(self, sandbox_id):
        return self.pause

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
    host.create(LaunchSpec(sandbox_id, Shape(1, 1024), "token-0123456789", 30000))
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
