"""A boot that fails in the hands of a worker that has lost it removes nothing."""
from dataclasses import replace

from bin.stack.free_ports import free_port
from nodeworker import runner
from nodeworker.handlers import lifecycle
from nodeworker.hypervisor.driver import LaunchSpec, Shape, VmState
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from services.hosts import assignments
from services.sandboxes import create
from tests.rows.operations import CREATE, caller, claim


def test_the_machine_that_another_worker_has_made_meanwhile_stays(deps, tmp_path):
    sandbox_id = create.create(deps, caller("alice"), CREATE).id
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path)
    driver = SimulatedDriver(settings)
    node = NodeDeps(settings, driver, deps.queue, None)
    late, present = claim(sandbox_id, lease_s=-1), claim(sandbox_id)
    driver.create(LaunchSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    sandbox = assignments.get_assigned(settings, sandbox_id)
    for claimed, left in ((late, VmState.RUNNING), (present, None)):
        outcome = lifecycle.failure(node, claimed, sandbox, RuntimeError("a failure"))
        assert not outcome.ok
        runner._finish(node, claimed, outcome)
        assert driver.inspect(sandbox_id) is left
