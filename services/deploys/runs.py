"""Gives one worker the right to work on a run, for the length of a lease, under an epoch of its
own.

It is the protocol of `services/operations/claims.py` on the rows of runs, which belong to an app
and not to one sandbox. A message only hints at a run; a claim by compare-and-set decides. What a
worker writes counts only under its epoch, so one that lost its lease changes nothing any more.
"""
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from models import locks
from models.database import ROW_LOCK, connection, database, now
from models.deploys import Deploy, DeployRun
from models.locks import LockClass
from models.operations import OutboxMessage
from models.row import Statement
from models.states import OPEN_RUN_STATES, Lane, RunState, RunStep
from services.operations.announcements import worker_name
from services.operations.claims import LeaseLost
from services.operations.due_work import DueWork
from services.operations.reporting_nodes import reporting_ids
from services.protocols import Deps

JOB = "node.deploy.run"
LANE = Lane.DEPLOY
# How long a run waits whose owner has enough of the lane (s).
_CROWDED_S = 1.0
RUNS = DueWork(
    model=DeployRun,
    due=DeployRun.announce_at,
    waiting=DeployRun.state.in_(OPEN_RUN_STATES),
    key=(DeployRun.id,),
    job=JOB,
    payload=lambda row: {"run": row.id},
    announce_again_s=15,
    first_pause_s=1,
    longest_pause_s=30,
    lane=LANE,
)


@dataclass(frozen=True)
class RunClaim:
    """The right to work on a run until the lease ends; `epoch` is its proof. The rest is the row as
    it was when it was claimed."""

    id: int
    slug: str
    app_id: str
    owner_id: str
    version: int
    epoch: int
    attempts: int
    step: RunStep
    node_id: str
    snapshot_id: str
    builder_sandbox_id: str | None
    runtime_sandbox_id: str | None
    manifest: dict[str, Any] | None
    stored_epoch: int | None
    has_expired: bool


def announce(run: DeployRun) -> list[OutboxMessage]:
    """Write the message that tells the run's node of it."""
    return RUNS.announce(DeployRun.id == run.id)


def announce_due(deps: Deps, node_id: str, within_s: float) -> datetime | None:
    """Announce the runs of a node that have waited long enough; returns when the first of them was
    due or will be, None if there is no run, or the node has not reported in the last `within_s`
    seconds that its lane works."""
    with connection():
        first = _FIRST.find(node_id, within_s)
    if first is not None and first.announce_at <= now():
        RUNS.announce_due(deps, within_s, DeployRun.node_id == node_id)
    return None if first is None else first.announce_at


_FIRST = Statement(DeployRun, lambda node_id, within_s: DeployRun.select(
    DeployRun.announce_at
).where(
    RUNS.waiting & (DeployRun.node_id == node_id) & DeployRun.announce_at.is_null(False)
    & DeployRun.node_id.in_(reporting_ids(within_s, LANE))
).order_by(DeployRun.announce_at).limit(1), values=2)


def resume(node_id: str) -> None:
    """The lane of this node has just started: nobody works on the runs that it was at."""
    with connection(), database.atomic():
        DeployRun.update(lease_until=now()).where(
            (DeployRun.node_id == node_id) & (DeployRun.state == RunState.RUNNING)).execute()
        RUNS.make_due(node_id)


def unheld_query(moment: Any) -> Any:
    """Those that are not at their end and that nobody works on at a moment."""
    return DeployRun.select().where(DeployRun.state.in_(OPEN_RUN_STATES) & unheld(moment))


def unheld(moment: Any) -> Any:
    """The condition on runs that picks those nobody works on at a moment."""
    return DeployRun.lease_until.is_null() | (DeployRun.lease_until < moment)


def has_open(slug: str) -> bool:
    """True while a run of the app is under way."""
    return bool(DeployRun.select().where(
        (DeployRun.slug == slug) & DeployRun.state.in_(OPEN_RUN_STATES)).exists())


def claim(run_id: int, node_id: str, worker: str, lease_s: float, *,
          share: int | None = None) -> RunClaim | None:
    """Take a run of this node for `lease_s` seconds; None when there is nothing to do: done, moved
    to another node, or in another's hands.

    Of one owner's runs a node works on at most `share` at once; one more waits a moment.
    """
    present = now()
    run = DeployRun.alias()
    free = (DeployRun.state == RunState.QUEUED) | (
        (DeployRun.state == RunState.RUNNING) & (DeployRun.lease_until < present))
    with database.atomic():
        locks.take_for_transaction(LockClass.LANE, worker_name(node_id, LANE))
        owner = DeployRun.select(DeployRun.owner_id).where(DeployRun.id == run_id).scalar()
        held_now = run.select().where(
            (run.owner_id == owner) & (run.node_id == node_id) & (run.id != run_id)
            & (run.state == RunState.RUNNING) & (run.lease_until >= present)).count()
        mine = (DeployRun.id == run_id) & (DeployRun.node_id == node_id) & free
        if share is not None and held_now >= share:
            soon = present + timedelta(seconds=_CROWDED_S)
            DeployRun.update(announce_at=soon).where(mine).execute()
            return None
        rows = list(
            DeployRun.update(
                state=RunState.RUNNING, epoch=DeployRun.epoch + 1, attempts=DeployRun.attempts + 1,
                claimed_by=worker, lease_until=present + timedelta(seconds=lease_s))
            .where(mine).returning(DeployRun).execute())
    return _claim_of(rows[0]) if rows else None


def _claim_of(row: DeployRun) -> RunClaim:
    return RunClaim(
        row.id, row.slug, row.app_id, row.owner_id, row.version, row.epoch, row.attempts,
        RunStep(row.step), row.node_id, row.snapshot_id, row.builder_sandbox_id,
        row.runtime_sandbox_id, row.manifest, row.stored_epoch, row.deadline_at < now())


def held(claimed: RunClaim) -> Any:
    """The condition on runs that picks this one while the claim counts."""
    return ((DeployRun.id == claimed.id) & (DeployRun.epoch == claimed.epoch)
            & (DeployRun.state == RunState.RUNNING))


def renew(claimed: RunClaim, lease_s: float) -> None:
    """Lengthen the lease to `lease_s` seconds from now; raises LeaseLost."""
    _write(claimed, lease_until=now() + timedelta(seconds=lease_s))


def give_back(claimed: RunClaim, delay_s: float, operator_error: str | None = None, *,
              counts: bool = True) -> None:
    """Let the run wait for `delay_s` seconds; nobody holds it then. Without an error, or where it
    only says what the run waits for, the attempt does not count as one. Raises LeaseLost."""
    counted = 1 if counts and operator_error is not None else 0
    _write(claimed, state=RunState.QUEUED, claimed_by=None, lease_until=None,
           attempts=DeployRun.attempts - 1 + counted, operator_error=operator_error,
           announce_at=now() + timedelta(seconds=delay_s))


def advance(claimed: RunClaim, step: RunStep, **columns: Any) -> RunClaim:
    """Say that `step` is next, with what the step before has found; returns the claim with it.
    Raises LeaseLost."""
    return _claim_of(_write(claimed, step=step, **columns))


def note(claimed: RunClaim, **columns: Any) -> RunClaim:
    """Write columns of the run, whose step stays what it is; returns the claim with them. Raises
    LeaseLost."""
    return _claim_of(_write(claimed, **columns))


def check_held(claimed: RunClaim) -> None:
    """The claim counts, and does so until the current transaction ends; raises LeaseLost."""
    row = DeployRun.select(DeployRun.id).where(held(claimed)).for_update(ROW_LOCK).get_or_none()
    if row is None:
        raise _lost(claimed)


def note_builder(claimed: RunClaim, sandbox_id: str | None) -> None:
    """Write which sandbox the run builds in, in the transaction that makes or forgets it; raises
    LeaseLost."""
    _write(claimed, builder_sandbox_id=sandbox_id)


def end(claimed: RunClaim, state: RunState, **columns: Any) -> DeployRun:
    """Write the end of a run in the current transaction; returns its row. Raises LeaseLost."""
    if not database.in_transaction():
        raise RuntimeError("a run ends in the transaction of what its end changes")
    return _write(claimed, state=state, claimed_by=None, lease_until=None, announce_at=None,
                  finished_at=now(), **columns)


def _write(claimed: RunClaim, **columns: Any) -> DeployRun:
    rows = list(
        DeployRun.update(columns).where(held(claimed)).returning(DeployRun).execute())
    if not rows:
        raise _lost(claimed)
    return rows[0]


def _lost(claimed: RunClaim) -> LeaseLost:
    return LeaseLost(f"deploy run {claimed.id} epoch {claimed.epoch}")


def lock_app(run: RunClaim | DeployRun) -> Deploy:
    """The row of the run's app, locked until the current transaction ends; raises LeaseLost for an
    app that was deleted. Who locks the row of the run as well does so afterwards."""
    row = Deploy.select().where(
        (Deploy.slug == run.slug)
        & (Deploy.app_id == run.app_id)).for_update(ROW_LOCK).get_or_none()
    if row is None:
        raise LeaseLost(f"app {run.app_id} is gone")
    return row
