"""Lets a version go live, in one transaction: what is served, the end of the run, the event, and
what is to be removed (contract, Deploy rules 4, 5, 7).

Before it nothing has happened, after it nothing is left to do but to clean up.
"""
from datetime import datetime
from typing import Any

from models.database import database, now
from models.deploys import Deploy, DeployRun
from models.operations import OutboxMessage
from models.states import DeployStatus, RunState
from services.deploys import earlier_versions, runs
from services.deploys.builder_removal import stop_builder
from services.deploys.edges.channel import notify
from services.deploys.runs import RunClaim
from services.deploys.served import fences, replica_keys, runtimes, stop_old_runtimes
from services.errors import Unavailable
from services.events import record
from services.operations import row_changes
from services.protocols import Deps


def publish_static(deps: Deps, claimed: RunClaim) -> list[OutboxMessage]:
    """Let the files that the run has stored be what is served; raises LeaseLost, and then nothing
    has changed."""
    with database.atomic():
        row = runs.lock_app(claimed)
        run = runs.end(claimed, RunState.SUCCEEDED, error=None, operator_error=None)
        _set_live(row, run, live_static=True, live_sandbox_id=None,
                  **earlier_versions.columns_after(deps.settings, row))
        _leave(deps, row, run, drain_s=deps.settings.deploy_drain_s)
        return stop_builder(deps, run)


def publish_served(deps: Deps, claimed: RunClaim, fence_until: datetime | None = None) -> None:
    """Let the runtime of the run be what serves the app; raises LeaseLost, and then nothing has
    changed.

    With `fence_until` its database is what the version before had when that fence began: raises
    Unavailable if it stands no more. Nothing is under way in the version before then, and it may
    never go on: it is stopped at once.
    """
    with database.atomic():
        row = runs.lock_app(claimed)
        # Before the fence is looked at: who was not told that the flip is done asks again, and has
        # none any more.
        run = runs.end(claimed, RunState.SUCCEEDED, error=None, operator_error=None)
        if fence_until is not None and not fences.stands(row, fence_until):
            raise Unavailable("The fence was over before the new version was up.")
        _set_live(row, run, live_static=False, live_sandbox_id=run.runtime_sandbox_id,
                  **earlier_versions.NONE)
        runtimes.begin_serving(deps.settings, run.runtime_sandbox_id)
        drain_s = deps.settings.deploy_drain_s if fence_until is None else 0
        _leave(deps, row, run, drain_s=drain_s)


def _set_live(row: Deploy, run: DeployRun, **columns: Any) -> None:
    Deploy.update(status=DeployStatus.LIVE, live_version=run.version, live_epoch=run.stored_epoch,
                  fence_until=None, updated_at=now(), **columns).where(
        Deploy.slug == row.slug).execute()


def _leave(deps: Deps, row: Deploy, run: DeployRun, *, drain_s: float) -> None:
    """Have what the version before needed removed, `row` as it was: files of a static app after a
    delay, the database of one that is not at once, its sandbox once it is drained; and what earlier
    runs have left that came to nothing, at once. Tell of the new one."""
    earlier_versions.collect(deps.settings, row, run)
    if row.live_sandbox_id is not None:
        # What it has stored goes, and the version that goes on with it has every row.
        replica_keys.revoke(row.live_sandbox_id)
        stop_old_runtimes.retire(row.live_sandbox_id, drain_s)
    notify()
    row_changes.notify(run.app_id)
    record.deploy_succeeded(run.owner_id, run.slug, run.run_id, run.deploy_intent_id)
