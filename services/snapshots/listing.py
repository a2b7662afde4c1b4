"""Lists an owner's snapshots in pages, newest first."""
from dataclasses import dataclass

from models.database import connection
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.users import User
from services.snapshots.views import SnapshotView, snapshot_view


@dataclass(frozen=True)
class SnapshotPage:
    """One page of an owner's snapshots; `total` counts all of them."""

    items: list[SnapshotView]
    total: int
    limit: int
    offset: int


def list_page(owner: User, *, limit: int, offset: int) -> SnapshotPage:
    """A page of what the owner can fork: finished snapshots that nobody deletes, newest first."""
    mine = Snapshot.select().where(
        (Snapshot.owner == owner.id)
        & (Snapshot.state == SnapshotState.READY)
        & ~Snapshot.transient
    )
    newest_first = Snapshot.created_at.desc(), Snapshot.id.desc()
    with connection():
        rows = mine.order_by(*newest_first).limit(limit).offset(offset)
        return SnapshotPage([snapshot_view(row) for row in rows], mine.count(), limit, offset)
