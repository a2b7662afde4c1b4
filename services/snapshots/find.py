"""Finds snapshots for their owner, and keeps one from being deleted while it is used."""
from models.database import connection
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.users import User
from services.errors import Forbidden, NotFound

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
    if row is None or row.state in (SnapshotState.DELETING, SnapshotState.DELETED):
        raise NotFound(f"There is no snapshot {snapshot_id}.")
    source_owner = Sandbox.select(Sandbox.owner).where(Sandbox.id == row.source_sandbox_id).scalar()
    if row.owner_id != owner.id or source_owner != owner.id:
        raise Forbidden("This snapshot belongs to another account.")
    return row
