"""What an operator sees of apps and their deploys: fields chosen one by one, so that none is a
secret."""
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from models.database import connection
from models.deploys import Deploy, DeployRun
from models.nodes import DiskUse
from models.states import OPEN_RUN_STATES, RunState
from models.users import User
from services.accounts import users
from services.deploys.apps.find import with_last_run
from services.hosts.storage_use import SANDBOX


@dataclass(frozen=True)
class RunReport:
    """A deploy. `step` is what it does next; `holder` is the worker that has it until
    `lease_until`; `restores_version` is what a rollback brings back."""

    id: int
    version: int
    run_id: str
    state: str
    step: str
    node_id: str
    attempts: int
    holder: str | None
    lease_until: datetime | None
    snapshot_id: str
    restores_version: int | None
    builder_sandbox_id: str | None
    runtime_sandbox_id: str | None
    created_at: datetime
    finished_at: datetime | None
    deadline_at: datetime
    error: str | None
    operator_error: str | None


@dataclass(frozen=True)
class AppReport:
    """An app: what it serves, if anything, and the deploy that was begun last, or the one that was
    asked about."""

    slug: str
    app_id: str
    owner: str
    status: str
    serving_version: int | None
    static: bool | None
    sandbox_id: str | None
    fence_until: datetime | None
    created_at: datetime
    run: RunReport


@dataclass(frozen=True)
class AppUse:
    """Bytes of one app: in the object store, and of the sandbox that serves it on its node. An app
    that was deleted has no slug."""

    app_id: str
    slug: str | None
    store_bytes: int
    sandbox_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The fields, with the sum of both."""
        return asdict(self) | {"total_bytes": self.total_bytes}

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.store_bytes + self.sandbox_bytes


def list_apps(account: str | None = None, *, only_open: bool = False, only_failed: bool = False,
              limit: int = 100, offset: int = 0) -> list[AppReport]:
    """A page of the apps of all accounts, or of one (its address or id), newest first: all, those
    with a deploy under way, those whose last one failed. Raises NotFound."""
    states = [state for state in RunState
              if not (only_open and state not in OPEN_RUN_STATES)
              and not (only_failed and state != RunState.FAILED)]
    which = DeployRun.state.in_(states)
    if account is not None:
        which &= Deploy.owner_id == users.get_named(account).id
    with connection():
        rows = list(with_last_run().where(which).order_by(Deploy.created_at.desc(), Deploy.slug)
                    .limit(limit).offset(offset))
        emails = dict(User.select(User.id, User.email).where(
            User.id.in_([row.owner_id for row in rows])).tuples())
    return [app_report(row, emails[row.owner_id], row.last_run) for row in rows]


def app_report(row: Deploy, owner: str, run: DeployRun) -> AppReport:
    """An app as operators see it."""
    return AppReport(
        slug=row.slug, app_id=row.app_id, owner=owner, status=row.status,
        serving_version=row.live_version, static=row.live_static, sandbox_id=row.live_sandbox_id,
        fence_until=row.fence_until, created_at=row.created_at, run=_run_report(run))


def _run_report(row: DeployRun) -> RunReport:
    return RunReport(
        id=row.id, version=row.version, run_id=row.run_id, state=row.state, step=row.step,
        node_id=row.node_id, attempts=row.attempts,
        holder=row.claimed_by if row.state == RunState.RUNNING else None,
        lease_until=row.lease_until, snapshot_id=row.snapshot_id,
        restores_version=row.restores_version, builder_sandbox_id=row.builder_sandbox_id,
        runtime_sandbox_id=row.runtime_sandbox_id, created_at=row.created_at,
        finished_at=row.finished_at, deadline_at=row.deadline_at, error=row.error,
        operator_error=row.operator_error)


def use_by_app(stored: Mapping[str, int]) -> list[AppUse]:
    """What each app occupies, the largest first; `stored` is what the store holds, by id."""
    with connection():
        apps = {row.app_id: row for row in Deploy.select()}
        serving = [row.live_sandbox_id for row in apps.values() if row.live_sandbox_id]
        disks = dict(DiskUse.select(DiskUse.resource_id, DiskUse.size_bytes).where(
            (DiskUse.kind == SANDBOX) & DiskUse.resource_id.in_(serving)).tuples())
    uses = [
        AppUse(app_id, apps[app_id].slug if app_id in apps else None, stored.get(app_id, 0),
               disks.get(apps[app_id].live_sandbox_id, 0) if app_id in apps else 0)
        for app_id in apps.keys() | stored.keys()]
    return sorted(uses, key=lambda use: (-use.total_bytes, use.app_id))
