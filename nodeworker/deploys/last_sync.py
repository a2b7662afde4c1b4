"""Brings the database of an app to the store before its sandbox sleeps (decisions: serverful
runtimes) or is stopped (contract, DELETE /v1/deploys/{slug}).

A sleep loses nothing that is not in the store: it is on the disk and in the memory that are kept.
So a guest that cannot, or does not want to, is given its time and then sleeps, or is stopped, as it
is.
"""
import logging

from guest.client.errors import AgentError
from nodeworker.deploys import replication
from nodeworker.deploys.replication import NotReplicated
from nodeworker.hypervisor.driver import VmState
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.deploys.served import replica_keys
from services.hosts.assignments import SandboxOnNode
from services.operations.claims import Claim

log = logging.getLogger(__name__)
_SYNC, _SYNC_LIMIT_S = "its database to reach the store", 20.0


def sync_database(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> None:
    """Returns once all rows of a sandbox that runs and replicates are in the store, or have had
    their time; at once for any other. Raises NotYet."""
    if not replica_keys.has_key(sandbox.id):
        return
    if deps.driver.inspect(sandbox.id) is not VmState.RUNNING:
        return
    try:
        replication.sync_configured(deps.agent(sandbox), talk_s(claimed))
    except (AgentError, NotReplicated) as error:
        if claimed.waited_for_s(_SYNC) < _SYNC_LIMIT_S:
            raise NotYet(_SYNC) from error
        log.warning("the %s of %s goes on before its database is in the store: %s",
                    claimed.kind.value, sandbox.id, error)
