"""Finds apps for services, and waits for their deploys to end."""
from models.database import connection
from models.deploys import Deploy, DeployRun
from models.users import User
from services.deploys import runs
from services.deploys.apps.views import DeployView, deploy_view
from services.errors import NotFound
from services.operations.waits import wait_until
from services.protocols import Deps


def get_view(deps: Deps, slug: str) -> DeployView:
    """The app of this slug; raises NotFound."""
    with connection():
        row = get(slug)
        return deploy_view(deps.settings, row, last_run(row.app_id))


def get(slug: str) -> Deploy:
    """The row of an app; raises NotFound."""
    row: Deploy | None = Deploy.get_or_none(Deploy.slug == slug)
    if row is None:
        raise NotFound(f"There is no app {slug}.")
    return row


def get_owner(slug: str) -> User:
    """The account that an app belongs to; raises NotFound."""
    with connection():
        return User.get_by_id(get(slug).owner_id)


def last_run(app_id: str) -> DeployRun:
    """The run of an app that was begun last; there is one."""
    run: DeployRun = DeployRun.select().where(DeployRun.app_id == app_id).order_by(
        DeployRun.version.desc()).get()
    return run


def get_log(slug: str) -> DeployRun:
    """The last run of an app, whose log is asked for; raises NotFound."""
    with connection():
        return last_run(get(slug).app_id)


def wait_for(deps: Deps, begun: DeployView, wait_s: float) -> DeployView | None:
    """The app once the deploy has ended; None if it has not within `wait_s` seconds."""

    def probe() -> DeployView | None:
        row = Deploy.get_or_none(Deploy.slug == begun.slug)
        if row is None or row.app_id != begun.app_id:
            raise NotFound(f"The app {begun.slug} was deleted meanwhile.")
        run = last_run(row.app_id)
        ended = run.version > begun.version or run.state not in runs.OPEN
        return deploy_view(deps.settings, row, run) if ended else None

    return wait_until(begun.app_id, probe, wait_s)
