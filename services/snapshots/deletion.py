"""Deletes snapshots, for their owner, an operator or by age, never while anything refers to them.

1. `delete` locks the row, refuses while anything refers to the snapshot, and marks it DELETING:
   from now on it is no source of a fork. Whoever begins to refer to a snapshot holds a lock of its
   row too, so one of the two comes second.
2. The message to its node is announced until 3. the node has removed the files, then the objects in
   the store, and says `deleted`. A lock on the node keeps uploads of the same snapshot away
   meanwhile.
"""
import contextlib
from datetime import timedelta
from typing import Any

import peewee

from models.database import ROW_LOCK, UNLOCKED_ROWS, connection, database, now
from models.deploys import DeployRun
from models.operations import Operation, OutboxMessage
from models.snapshots import Snapshot
from models.states import OPEN_RUN_STATES, OPEN_STATES, SnapshotState
from models.templates import Template
from models.users import User
from services.errors import Conflict, NotFound
from services.operations import outbox
from services.operations.due_work import DueWork
from services.protocols import Deps
from services.snapshots import find
from services.snapshots.views import SnapshotView, snapshot_view

JOB = "node.snapshot.delete"
DELETIONS = DueWork(
    model=Snapshot,
    due=Snapshot.delete_due_at,
    waiting=Snapshot.state == SnapshotState.DELETING,
    key=(Snapshot.id,),
    job=JOB,
    payload=lambda row: {"snapshot_id": row.id},
    announce_again_s=300,
    first_pause_s=60,
    longest_pause_s=60,
)
_BATCH = 50
_DELETABLE = (SnapshotState.READY, SnapshotState.FAILED)


def delete(deps: Deps, snapshot_id: str) -> None:
    """Begin to delete a snapshot; its files go within moments, once its node has time. Again: says
    so again.

    Raises NotFound, or Conflict naming what still needs it; then nothing has changed.
    """
    with connection():
        with database.atomic():
            row = Snapshot.select().where(
                Snapshot.id == snapshot_id).for_update(ROW_LOCK).get_or_none()
            if row is None or row.state == SnapshotState.DELETED:
                raise NotFound(f"There is no snapshot {snapshot_id}.")
            if row.state != SnapshotState.DELETING:
                reason = find_reference(row)
                if reason:
                    raise Conflict(f"Snapshot {snapshot_id} cannot be deleted: {reason}")
            messages = _begin(row)
        outbox.flush(deps.queue, messages)


def delete_owned(deps: Deps, owner: User, snapshot_id: str) -> SnapshotView:
    """Begin to delete a snapshot of `owner`, and show what it was; again changes nothing.

    Raises NotFound, Forbidden, or Conflict naming what still needs it; then nothing has changed.
    """
    row = find.get_row(owner, snapshot_id)
    # Its node may say `deleted` at any moment, and then it is gone, which is what was asked for.
    with contextlib.suppress(NotFound):
        delete(deps, snapshot_id)
    return snapshot_view(row)


def find_reference(row: Snapshot) -> str | None:
    """What still refers to this snapshot, in words; None if nothing does and it may be deleted.
    With its row locked."""
    if row.state not in _DELETABLE:
        return "it is being captured; try again when that is done."
    template = templates_of(row.id).first()
    if template is not None:
        return (f"the template {template.name}-v{template.version} stands on it; an operator can"
                " remove that.")
    booting = _open_operations(row.id).first()
    if booting is not None:
        return f"sandbox {booting.sandbox_id} is being made from it; try again when that is done."
    run = _open_runs(row.id).first()
    if run is not None:
        return f"a deploy of {run.slug} is under way from it; try again when that has ended."
    return None


def _open_operations(snapshot: Any) -> Any:
    return Operation.select().where((Operation.snapshot_id == snapshot)
                                    & Operation.state.in_(OPEN_STATES))


def _open_runs(snapshot: Any) -> Any:
    return DeployRun.select().where(
        (DeployRun.snapshot_id == snapshot)
        & DeployRun.state.in_(OPEN_RUN_STATES))


def templates_of(snapshot: Any) -> Any:
    """The query of the templates that are made of a snapshot (an id or a column): while it finds
    one, the snapshot must not be removed."""
    return Template.select().where((Template.snapshot_id == snapshot)
                                   & Template.deleted_at.is_null())


def expire(deps: Deps) -> int:
    """Begin to delete a batch of snapshots that are older than SVC_SNAPSHOT_DAYS and that nothing
    refers to; returns how many. Those that are still needed are kept until they are not."""
    if not deps.settings.snapshot_days:
        return 0
    before = now() - timedelta(days=deps.settings.snapshot_days)
    with connection():
        with database.atomic():
            old = (
                Snapshot.select()
                .where(
                    (Snapshot.state == SnapshotState.READY)
                    & ~Snapshot.transient
                    & (Snapshot.created_at < before)
                    & ~peewee.fn.EXISTS(_open_operations(Snapshot.id))
                    & ~peewee.fn.EXISTS(_open_runs(Snapshot.id))
                    & ~peewee.fn.EXISTS(templates_of(Snapshot.id))
                )
                .order_by(Snapshot.created_at)
                .limit(_BATCH)
                .for_update(UNLOCKED_ROWS)
            )
            # Asked again under the lock: a fork may have begun while the rows were looked for.
            unneeded = [row for row in list(old) if find_reference(row) is None]
            messages = [message for row in unneeded for message in _begin(row)]
        outbox.flush(deps.queue, messages)
    return len(messages)


def _begin(row: Snapshot) -> list[OutboxMessage]:
    Snapshot.update(state=SnapshotState.DELETING, upload_due_at=None).where(
        Snapshot.id == row.id).execute()
    return DELETIONS.announce(Snapshot.id == row.id)


def is_due_on(node_id: str, snapshot_id: str) -> bool:
    """True if this node is to remove the snapshot."""
    with connection():
        return bool(Snapshot.select().where(
            (Snapshot.id == snapshot_id) & (Snapshot.node_id == node_id)
            & DELETIONS.waiting).exists())


def deleted(snapshot_id: str) -> None:
    """Nothing of the snapshot is left anywhere: the row is final. Again: no-op."""
    Snapshot.update(state=SnapshotState.DELETED, uploaded_to_store=False, delete_due_at=None,
                    env={}).where(
        (Snapshot.id == snapshot_id) & DELETIONS.waiting
    ).execute()


def failed(snapshot_id: str) -> None:
    """Something of it could not be removed: try again in a minute."""
    Snapshot.update(delete_due_at=DELETIONS.next_try_at(0)).where(
        (Snapshot.id == snapshot_id) & DELETIONS.waiting).execute()
