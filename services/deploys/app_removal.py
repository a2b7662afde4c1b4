"""Removes an app: from that moment its address serves nothing; its sandbox and its files go later
(contract, Deploy surface).

1. Its sandbox has its key to the store until every row is there and it is stopped, or it has had
its time (`replica_keys.revoke_ended`); what it has stored goes after the key. 2. A run that is
under way ends with `deploy.failed`; whatever it does afterwards counts for nothing.
"""
from models.database import connection, database, now
from models.deploys import Deploy, DeployRun
from models.operations import OutboxMessage
from models.states import OPEN_RUN_STATES, RunState
from models.users import User
from services.deploys import version_prefixes
from services.deploys.apps import find
from services.deploys.apps.access import lock_owned
from services.deploys.apps.views import DeployView, deploy_view
from services.deploys.builder_removal import stop_builder
from services.deploys.edges.channel import notify
from services.deploys.served.stop_old_runtimes import retire
from services.events import record
from services.operations import outbox, row_changes
from services.protocols import Deps

_DELETED = "The app was deleted."


def remove(deps: Deps, owner: User, slug: str) -> DeployView:
    """Remove the owner's app and its address; returns what it was. Raises NotFound, Forbidden."""
    with connection():
        with database.atomic():
            row = lock_owned(owner, slug)
            last = find.last_run(row.app_id)
            messages = _end_open(deps, row)
            if row.live_sandbox_id is not None:
                retire(row.live_sandbox_id, deps.settings.deploy_drain_s)
            version_prefixes.collect_all(row.app_id)
            Deploy.delete().where(Deploy.slug == slug).execute()
            notify()
            row_changes.notify(row.app_id)
        outbox.flush(deps.queue, messages)
    return deploy_view(deps.settings, row, last)


def _end_open(deps: Deps, row: Deploy) -> list[OutboxMessage]:
    ended = list(
        DeployRun.update(state=RunState.FAILED, error=_DELETED, finished_at=now(),
                         announce_at=None, lease_until=None, claimed_by=None)
        .where((DeployRun.app_id == row.app_id) & DeployRun.state.in_(OPEN_RUN_STATES))
        .returning(DeployRun).execute())
    messages: list[OutboxMessage] = []
    for run in ended:
        record.deploy_failed(run.owner_id, run.slug, run.run_id, run.deploy_intent_id, _DELETED)
        messages += stop_builder(deps, run)
    return messages
