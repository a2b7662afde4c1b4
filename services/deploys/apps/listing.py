"""Lists an account's apps in pages, newest first."""
from dataclasses import dataclass

from models.database import connection
from models.deploys import Deploy
from models.users import User
from services.deploys.apps.find import with_last_run
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
    mine = with_last_run().where(Deploy.owner_id == owner.id)
    with connection():
        items = [deploy_view(deps.settings, app, app.last_run) for app in mine.order_by(
            Deploy.created_at.desc(), Deploy.slug).limit(limit).offset(offset)]
        return DeployPage(items, mine.count(), limit, offset)
