"""Lists an account's apps in pages, newest first."""
from dataclasses import dataclass

from models.database import connection
from models.deploys import Deploy, DeployRun
from models.users import User
from services.deploys.apps.views import DeployView, deploy_view
from services.protocols import Deps


@dataclass(frozen=True)
class DeployPage:
    """One page of an account's apps; `total` counts all of them."""

    items: list[DeployView]
    total: int
    limit: int
    offset: int


def list_page(deps: Deps, owner: User, *, limit: int, offset: int) -> DeployPage:
    """A page of the account's apps, each with the deploy that was begun last."""
    mine = Deploy.select().where(Deploy.owner_id == owner.id)
    with connection():
        apps = list(mine.order_by(Deploy.created_at.desc(), Deploy.slug).limit(limit)
                    .offset(offset))
        last = last_runs([app.app_id for app in apps])
        items = [deploy_view(deps.settings, app, last[app.app_id]) for app in apps]
        return DeployPage(items, mine.count(), limit, offset)


def last_runs(app_ids: list[str]) -> dict[str, DeployRun]:
    """The run of each app that was begun last."""
    newest = DeployRun.select().where(DeployRun.app_id.in_(app_ids)).distinct(
        DeployRun.app_id).order_by(DeployRun.app_id, DeployRun.version.desc())
    return {run.app_id: run for run in newest}
