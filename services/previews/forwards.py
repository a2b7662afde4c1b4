"""Decides whether a node has heard of a port that was bound for a running sandbox, and tells it.

A boot, a wake or a `forward` opens every port that was bound before it began. So a binding is open
once an operation with a higher number than `bound_seq` has succeeded.
"""
from models.nodes import PortBinding
from models.operations import Operation, OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, OperationState
from services.operations.begin import begin
from services.operations.open_limit import check_open
from services.protocols import Deps

_OPENERS = (OperationKind.BOOT, OperationKind.WAKE, OperationKind.FORWARD)


def is_forwarded(sandbox: Sandbox, guest_port: int) -> bool:
    """Whether a bound port of a sandbox that runs leads to its guest."""
    binding = PortBinding.get((PortBinding.sandbox_id == sandbox.id)
                              & (PortBinding.guest_port == guest_port))
    return bool(Operation.select().where(
        (Operation.sandbox_id == sandbox.id) & (Operation.op_seq > binding.bound_seq)
        & Operation.kind.in_(_OPENERS) & (Operation.state == OperationState.SUCCEEDED)).exists())


def forward_if_missing(deps: Deps, sandbox: Sandbox, guest_port: int) -> list[OutboxMessage]:
    """Begin to open a bound port of a sandbox that runs, whose row is locked and that nothing is
    done to, unless it is open; the messages are to be flushed after the commit. Raises
    RateLimited."""
    if is_forwarded(sandbox, guest_port):
        return []
    check_open(deps.settings, sandbox.owner_id)
    return begin(deps.settings, sandbox, OperationKind.FORWARD)[1]
