"""Ends a run that came to nothing: what is served stays as it is, and the run's files go (contract,
Deploy rule 8)."""
from models.database import database, now
from models.deploys import Deploy, DeployPrefix
from models.operations import OutboxMessage
from models.states import DeployStatus, RunState
from services.deploys import runs, version_prefixes
from services.deploys.builder_removal import stop_builder
from services.deploys.edges.channel import notify
from services.deploys.runs import RunClaim
from services.events import record
from services.operations import row_changes
from services.protocols import Deps


def fail(deps: Deps, claimed: RunClaim, error: str,
         operator_error: str | None = None) -> list[OutboxMessage]:
    """End the run without changing what is served. `error` is for the one who asked for it. Raises
    LeaseLost."""
    with database.atomic():
        row = runs.lock_app(claimed)
        run = runs.end(claimed, RunState.FAILED, error=error, operator_error=operator_error)
        if row.live_version is None:
            Deploy.update(status=DeployStatus.FAILED, updated_at=now()).where(
                Deploy.slug == claimed.slug).execute()
        if row.fence_until is not None:
            Deploy.update(fence_until=None).where(Deploy.slug == claimed.slug).execute()
            notify()
        version_prefixes.collect((DeployPrefix.app_id == claimed.app_id)
                                 & (DeployPrefix.version == claimed.version))
        row_changes.notify(claimed.app_id)
        record.deploy_failed(claimed.owner_id, claimed.slug, run.run_id, run.deploy_intent_id,
                             error)
        return stop_builder(deps, run)
