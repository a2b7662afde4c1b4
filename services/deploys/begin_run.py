"""Takes a deploy on: reserves the slug, or the next version of an app, and tells a node of the run.

1. The app's row is made, or locked. Another owner's is refused. 2. The run is written; an index
lets an app have one open run. 3. The run's node is told. It is one transaction (contract, Deploy
rule 1): of several first deploys of one slug at once, one is taken on.
"""
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import peewee

from models.database import ROW_LOCK, connection, database, now
from models.deploys import Deploy, DeployRun
from models.ids import new_id
from models.snapshots import Snapshot
from models.states import DeployStatus, SnapshotKind, SnapshotState
from models.users import User
from services.deploys import runs
from services.deploys.apps.slugs import check_slug
from services.deploys.apps.views import DeployView, deploy_view
from services.errors import Conflict, Unavailable
from services.hosts import placement
from services.operations import outbox
from services.protocols import Deps
from services.snapshots.find import get_owned

_TRIES = 3


@dataclass(frozen=True)
class DeployRequest:
    """A validated body: the snapshot to build, the app's slug, and what is echoed in events."""

    snapshot_id: str
    slug: str
    run_id: str
    deploy_intent_id: str | None = None


@dataclass(frozen=True)
class RollbackRequest:
    """A validated body: which app, which version of it, the one before what is served if none is
    named, and what is echoed in events."""

    slug: str
    run_id: str
    version: int | None = None
    deploy_intent_id: str | None = None


def reserve(deps: Deps, owner: User, request: DeployRequest) -> DeployView:
    """Begin to publish a snapshot; the app's row says `building` until its first version is live.

    Raises InvalidRequest for the slug, NotFound and Forbidden for the snapshot, Conflict for a slug
    that is another's or has an open run and for a snapshot that is not ready, Unavailable.
    """
    check_slug(request.slug)
    with connection():
        try:
            with database.atomic():
                taken = get_owned(owner, request.snapshot_id)
                if taken.state != SnapshotState.READY:
                    raise Conflict(f"The snapshot is {taken.state}; only a ready one can be"
                                   " deployed.")
                row = _lock_app(owner, request.slug)
                run = insert_run(deps, row, request, snapshot_id=taken.id,
                                 node_id=node_for(deps, taken))
                messages = runs.announce(run)
        except peewee.IntegrityError as error:
            raise _exists(request.slug) from error
        outbox.flush(deps.queue, messages)
    return deploy_view(deps.settings, row, run)


def _lock_app(owner: User, slug: str) -> Deploy:
    """The app's row, locked or just made, if the owner may begin a run of it now; raises
    Conflict."""
    row = _find_or_make(owner, slug)
    if row.owner_id != owner.id or runs.has_open(slug):
        raise _exists(slug)
    if row.status == DeployStatus.FAILED:  # it has never been live
        row = Deploy.update(status=DeployStatus.BUILDING, updated_at=now()).where(
            Deploy.slug == slug).returning(Deploy).execute()[0]
    return row


def _find_or_make(owner: User, slug: str) -> Deploy:
    """The app's row, locked; who comes second to a new slug waits here for the first, and finds
    that one's. One that was deleted while we waited for it is made anew; raises Conflict if that
    happens each time."""
    for _ in range(_TRIES):
        present = now()
        Deploy.insert(slug=slug, app_id=new_id("app_"), owner_id=owner.id, created_at=present,
                      updated_at=present).on_conflict_ignore().execute()
        row: Deploy | None = Deploy.select().where(
            Deploy.slug == slug).for_update(ROW_LOCK).get_or_none()
        if row is not None:
            return row
    raise Conflict(f"The slug {slug} is being deleted at this moment.")


def insert_run(deps: Deps, row: Deploy, request: DeployRequest | RollbackRequest,
               **columns: Any) -> DeployRun:
    """Write the run of an app's next version, whose row is locked."""
    run: DeployRun = DeployRun.create(**{
        "slug": row.slug, "app_id": row.app_id, "owner_id": row.owner_id,
        "version": row.next_version, "run_id": request.run_id,
        "deploy_intent_id": request.deploy_intent_id, "announce_at": now(),
        "deadline_at": now() + timedelta(seconds=deps.settings.deploy_deadline_s), **columns})
    Deploy.update(next_version=Deploy.next_version + 1).where(Deploy.slug == row.slug).execute()
    return run


def node_for(deps: Deps, taken: Snapshot) -> str:
    """The node that holds the snapshot; for an archive, which is in the store, the one with most
    room."""
    if taken.kind != SnapshotKind.FILES_ONLY:
        return str(taken.node_id)
    order = placement.list_by_load(deps.settings)
    if not order:
        raise Unavailable("No node can build the app at present.", retry_after_s=10)
    return order[0]


def _exists(slug: str) -> Conflict:
    return Conflict(f"The slug {slug} exists already, or a deploy of it is under way.")
