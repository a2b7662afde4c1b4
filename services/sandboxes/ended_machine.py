"""Makes a sandbox `hibernated` whose machine has ended by itself; it wakes from its disk.

There is nothing left to do on the node, so the hibernation is begun, claimed and finished in one
transaction, by the operation protocol as every other.
"""
from config.settings import Settings
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.operations.begin import begin
from services.operations.claims import claim
from services.sandboxes.outcomes import Outcome, finish

_WORKER = "reconciler"


def hibernate(settings: Settings, sandbox: Sandbox, note: str) -> list[OutboxMessage]:
    """Write in the current transaction that a running sandbox, whose row is locked, is asleep;
    returns the messages to flush after the commit. `note` tells operators why."""
    operation, messages = begin(settings, sandbox, OperationKind.HIBERNATE, requested_by=_WORKER)
    claimed = claim(sandbox.id, operation.op_seq, f"{sandbox.node_id}/{_WORKER}",
                    settings.operation_lease_s)
    assert claimed is not None, "an operation of this very transaction is free"
    values = {"vm_ip": "", "idle_at": None, "operator_note": note}
    outcome = Outcome(True, SandboxStatus.HIBERNATED, sandbox=values, note=note)
    return messages + finish(claimed, outcome)
