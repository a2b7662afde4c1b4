"""Finds snapshots for their owner, and keeps one from being deleted while it is used."""
from models.database import connection
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.users import User
from services.errors import Conflict, Forbidden, NotFound
from services.snapshots.views import SnapshotView, snapshot_view

_GONE = (SnapshotState.DELETING, SnapshotState.DELETED)
# A reader's lock: whoever wants to remove the snapshot waits, other readers do not.
_KEPT = "FOR SHARE"


def lock_shared(snapshot_id: str) -> Snapshot | None:
    """The row of a snapshot with a shared lock: others may read it, and not change it, until the
    current transaction ends."""
    return Snapshot.select().where(Snapshot.id == snapshot_id).for_update(_KEPT).get_or_none()


def list_of(owner: User) -> list[Snapshot]:
    """Every snapshot of an owner that is not gone, newest first; the captures that carry forks are
    not among them."""
    with connection():
        return list(
            Snapshot.select()
            .where(
                (Snapshot.owner == owner.id)
                & ~Snapshot.transient
                & (Snapshot.state != SnapshotState.DELETED)
            )
            .order_by(Snapshot.created_at.desc(), Snapshot.id)
        )


def get_owned(owner: User, snapshot_id: str) -> Snapshot:
    """The row, if `owner` owns snapshot and source sandbox, kept from being deleted until the
    current transaction ends; raises NotFound, Forbidden."""
    row = lock_shared(snapshot_id)
    if row is None or row.state in _GONE:
        raise _unknown(snapshot_id)
    source_owner = Sandbox.select(Sandbox.owner).where(Sandbox.id == row.source_sandbox_id).scalar()
    if row.owner_id != owner.id or source_owner != owner.id:
        raise _anothers()
    return row


def get_row(owner: User, snapshot_id: str) -> Snapshot:
    """The row of a snapshot that `owner` took, in whatever state; raises NotFound, Forbidden. The
    captures that carry forks are nobody's to see."""
    with connection():
        row: Snapshot | None = Snapshot.get_or_none(
            (Snapshot.id == snapshot_id) & ~Snapshot.transient)
    if row is None:
        raise _unknown(snapshot_id)
    if row.owner_id != owner.id:
        raise _anothers()
    return row


def get_view(owner: User, snapshot_id: str) -> SnapshotView:
    """A finished snapshot as its owner sees it; raises as `get_row`, and Conflict while it is being
    captured."""
    row = get_row(owner, snapshot_id)
    if row.state in (*_GONE, SnapshotState.FAILED):
        raise _unknown(snapshot_id)
    if row.state == SnapshotState.PENDING:
        raise Conflict(f"Snapshot {snapshot_id} is being captured; ask again when that is done.")
    return snapshot_view(row)


def _unknown(snapshot_id: str) -> NotFound:
    return NotFound(f"There is no snapshot {snapshot_id}.")


def _anothers() -> Forbidden:
    return Forbidden("This snapshot belongs to another account.")
