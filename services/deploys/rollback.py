"""Brings an earlier version of an app back: a run as any, which builds that version's snapshot
again. Data is not rolled back.

1. Without a version that is the one that was served before; asked for again, it goes further back,
never to what was just given up. 2. If version N-1 is still served where N lacks a file, its files
are where they have to be: it goes live at once, under its own number, in the transaction that
writes its run, and N becomes the version before.
"""
from typing import Any

from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.snapshots import Snapshot
from models.states import RunState, SnapshotState
from models.users import User
from services.deploys import earlier_versions, runs, version_prefixes
from services.deploys.apps.access import lock_owned
from services.deploys.apps.views import DeployView, deploy_view
from services.deploys.begin_run import RollbackRequest, insert_run, node_for
from services.deploys.edges import staging
from services.deploys.edges.channel import notify
from services.deploys.projects.manifest import FILE
from services.errors import Conflict, NotFound
from services.events import record
from services.operations import outbox, row_changes
from services.protocols import Deps
from services.snapshots.find import lock_shared


def roll_back(deps: Deps, owner: User, request: RollbackRequest) -> DeployView:
    """Begin to bring a version back, or have done so.

    Raises NotFound for the app or the version, Forbidden, Conflict while a deploy is under way, if
    there is nothing to go back to, if data would be lost, or if the version cannot be built any
    more, Unavailable.
    """
    with connection():
        with database.atomic():
            row = lock_owned(owner, request.slug)
            if runs.has_open(row.slug):
                raise Conflict(f"A deploy of {row.slug} is under way.")
            target = _target(row, request.version)
            messages = []
            if _is_at_hand(row, target):
                run = _flip(deps, row, target, request)
            else:
                _check_data(row, target)
                taken = _snapshot(target)
                run = insert_run(deps, row, request, snapshot_id=taken.id,
                                 node_id=node_for(deps, taken), restores_version=_origin(target))
                messages = runs.announce(run)
            row = Deploy.get_by_id(row.slug)
        outbox.flush(deps.queue, messages)
    return deploy_view(deps.settings, row, run)


def _target(row: Deploy, version: int | None) -> DeployRun:
    """The run whose version is to come back."""
    if row.live_version is None:
        raise Conflict(f"No version of {row.slug} is served.")
    were_live = DeployRun.select().where(
        (DeployRun.app_id == row.app_id) & (DeployRun.state == RunState.SUCCEEDED))
    served = _origin(were_live.where(DeployRun.version == row.live_version).get())
    if version is None:
        target = were_live.where(DeployRun.version < served).order_by(
            DeployRun.version.desc()).first()
        if target is None:
            raise Conflict(f"There is no earlier version of {row.slug}.")
    else:
        target = were_live.where(DeployRun.version == version).first()
        if target is None:
            raise NotFound(f"{row.slug} never served a version {version}.")
        if _origin(target) == served:
            raise Conflict(f"Version {version} is what {row.slug} serves.")
    found: DeployRun = target
    return found


def _origin(run: DeployRun) -> int:
    """The version whose snapshot a run built first."""
    return int(run.restores_version or run.version)


def _check_data(row: Deploy, target: DeployRun) -> None:
    """A version without a database drops the one there is; a rollback must not."""
    served = DeployRun.get((DeployRun.app_id == row.app_id)
                           & (DeployRun.version == row.live_version))
    if _has_database(served) and not _has_database(target):
        raise Conflict(f"Version {target.version} has no database, so the data of {row.slug} would"
                       f' be lost. A deploy whose {FILE} says `"database": null` gives it up.')


def _has_database(run: DeployRun) -> bool:
    found: dict[str, Any] = run.manifest or {}
    return bool(found.get("database"))


def _snapshot(target: DeployRun) -> Snapshot:
    taken = lock_shared(target.snapshot_id)
    if taken is None or taken.state != SnapshotState.READY:
        raise Conflict(f"Version {target.version} cannot be built again: its snapshot"
                       f" {target.snapshot_id} is gone.")
    return taken


def _is_at_hand(row: Deploy, target: DeployRun) -> bool:
    """True if the files of the version are on the edges and in the store, and stay: what removes
    them in the store has not begun."""
    prefix = earlier_versions.prefix_served(row)
    if not row.live_static or prefix is None or row.previous_version not in (
            target.version, _origin(target)):
        return False
    return staging.have_all(prefix) and version_prefixes.cancel_removal(prefix)


def _flip(deps: Deps, row: Deploy, target: DeployRun, request: RollbackRequest) -> DeployRun:
    """Let version N-1 be what is served, and N what is served where that lacks a file."""
    run = insert_run(deps, row, request, snapshot_id=target.snapshot_id, node_id=target.node_id,
                     restores_version=_origin(target), state=RunState.SUCCEEDED, announce_at=None,
                     finished_at=now())
    Deploy.update(
        live_version=row.previous_version, live_epoch=row.previous_epoch, updated_at=now(),
        **earlier_versions.columns_after(deps.settings, row),
    ).where(Deploy.slug == row.slug).execute()
    given_up = version_prefixes.prefix_of(row.app_id, row.live_version, row.live_epoch)
    version_prefixes.collect(DeployPrefix.prefix == given_up,
                             earlier_versions.served_for_s(deps.settings, row))
    notify()
    row_changes.notify(row.app_id)
    record.deploy_succeeded(row.owner_id, row.slug, run.run_id, run.deploy_intent_id)
    return run
