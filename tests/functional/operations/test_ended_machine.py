"""A machine that ended by itself: its row is written by an operation of the protocol."""
from dataclasses import replace

from bin.stack.free_ports import free_port
from models.database import connection
from models.operations import Operation
from models.states import OperationKind, OperationState, SandboxStatus
from nodeworker.hypervisor.driver import MachineSpec, Shape
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.reconciliation.reconciler import Reconciler
from nodeworker.wiring import NodeDeps
from tests.rows.operations import boot, row


def test_the_end_of_a_hibernation_says_that_it_is_asleep(deps, tmp_path):
    sandbox_id = boot(deps)
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path)
    driver = SimulatedDriver(settings)
    driver.create(MachineSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    driver.hibernate(sandbox_id)
    before = list(deps.queue.sent)
    Reconciler(NodeDeps(settings, driver, deps.queue, None)).run()
    seen = row(sandbox_id)
    assert (seen.status, seen.task, seen.idle_at) == (SandboxStatus.HIBERNATED, None, None)
    with connection():
        last = Operation.get((Operation.sandbox_id == sandbox_id)
                             & (Operation.op_seq == seen.op_seq))
    assert (last.kind, last.state, last.requested_by) == (
        OperationKind.HIBERNATE, OperationState.SUCCEEDED, "reconciler")
    assert last.note == seen.operator_note != ""
    assert deps.queue.sent == before, "a node is told of an operation that is finished"
