"""Finds apps for services, and waits for their deploys to end. One that acts for an account sees
the apps of that account, one that acts for nobody all of them.

An app and its last run change in one transaction, so whoever shows both reads both in one
statement: between two of them a deploy may end, and it would be over and still under way.
"""
from typing import Any

import peewee

from models.database import connection
from models.deploys import Deploy, DeployRun
from models.states import OPEN_RUN_STATES
from models.users import User
from services.deploys.apps.access import seen_by
from services.deploys.apps.views import DeployView, deploy_view
from services.errors import NotFound
from services.operations.row_changes import wait_until
from services.protocols import Deps


def get_view(deps: Deps, owner: User | None, slug: str) -> DeployView:
    """The app of this slug; raises NotFound, Forbidden."""
    with connection():
        row = seen_by(owner, slug, with_last_run().where(Deploy.slug == slug).first())
        return deploy_view(deps.settings, row, row.last_run)


def get(owner: User | None, slug: str) -> Deploy:
    """The row of an app; raises NotFound, Forbidden."""
    return seen_by(owner, slug, Deploy.get_or_none(Deploy.slug == slug))


def get_owner(slug: str) -> User:
    """The account that an app belongs to; raises NotFound."""
    with connection():
        return User.get_by_id(get(None, slug).owner_id)


def with_last_run() -> peewee.ModelSelect:
    """The query for apps that has the run of each that was begun last as its `last_run`."""
    run = DeployRun.alias()
    return _with_run(run.select(peewee.fn.MAX(run.version)).where(run.app_id == Deploy.app_id),
                     "last_run")


def _with_run(version: Any, name: str) -> peewee.ModelSelect:
    return Deploy.select(Deploy, DeployRun).join(DeployRun, attr=name, on=(
        (DeployRun.app_id == Deploy.app_id) & (DeployRun.version == version)))


def last_run(app_id: str) -> DeployRun:
    """The run of an app that was begun last; there is one."""
    run: DeployRun = DeployRun.select().where(DeployRun.app_id == app_id).order_by(
        DeployRun.version.desc()).get()
    return run


def get_log(owner: User | None, slug: str) -> DeployRun:
    """The last run of an app, whose log is asked for; raises NotFound, Forbidden."""
    with connection():
        return last_run(get(owner, slug).app_id)


def wait_for(deps: Deps, begun: DeployView, wait_s: float) -> DeployView | None:
    """The app and the deploy once that has ended, whatever was begun since; None if it has not
    within `wait_s` seconds."""

    def probe() -> DeployView | None:
        row = _with_run(begun.version, "run").where(Deploy.app_id == begun.app_id).first()
        if row is None:
            raise NotFound(f"The app {begun.slug} was deleted meanwhile.")
        ended = row.run.state not in OPEN_RUN_STATES
        return deploy_view(deps.settings, row, row.run) if ended else None

    return wait_until(begun.app_id, probe, wait_s)
