"""Removes the builder of a run, or what it has become, in the transaction that ends the run without
it going live or has it begin anew."""
from models.deploys import DeployRun
from models.operations import OutboxMessage
from models.states import SandboxStatus
from services.deploys.served import replica_keys
from services.operations.begin import lock_sandbox
from services.protocols import Deps
from services.sandboxes.outcomes import begin_stop

# The account that builders and runtimes belong to; nobody can sign in as it (migration 0022).
ACCOUNT = "svc-deploys"


def stop_builder(deps: Deps, run: DeployRun) -> list[OutboxMessage]:
    """Begin to remove the builder of a run, and the runtime that it may be, if it has one, in the
    current transaction."""
    messages: list[OutboxMessage] = []
    for sandbox_id in filter(None, (run.builder_sandbox_id, run.runtime_sandbox_id)):
        sandbox = lock_sandbox(sandbox_id)
        replica_keys.revoke(sandbox_id)
        if sandbox is not None and sandbox.status != SandboxStatus.STOPPED:
            messages += begin_stop(deps.settings, sandbox, requested_by=ACCOUNT)[1]
    return messages
