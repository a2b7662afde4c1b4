"""Decides whether a node has heard of a port that was bound for a running sandbox, and tells it."""
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind
from services.hosts.sandbox_ports import open_ports
from services.operations.begin import begin
from services.operations.open_limit import check_open
from services.protocols import Deps


def forward_if_missing(deps: Deps, sandbox: Sandbox, guest_port: int) -> list[OutboxMessage]:
    """Begin to open a bound port of a sandbox that runs, whose row is locked and that nothing is
    done to, unless it is open; the messages are to be flushed after the commit. Raises
    RateLimited."""
    if guest_port in open_ports(sandbox.id):
        return []
    check_open(deps.settings, sandbox)
    return begin(deps.settings, sandbox, OperationKind.FORWARD)[1]
