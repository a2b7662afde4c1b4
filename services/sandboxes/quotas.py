"""How many sandboxes and snapshots an account may have, and how many bytes all of them may take.

The figures are the operator's, by plan; a plan that a setting does not name has no such limit. What
is asked for beyond one is a Conflict, as for API keys: deleting something makes room. What runs is
never touched, and what sleeps can be woken.
"""
from collections.abc import Callable, Mapping

from config.settings import Settings
from models.database import ROW_LOCK
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from models.users import User
from services.errors import Conflict
from services.hosts import storage_use

_GB = 1000**3


def check_sandbox(settings: Settings, owner: User) -> None:
    """Raises Conflict if the account may have no further sandbox. In the current transaction, in
    which a second request of the account waits from here."""
    _lock(owner)
    _check(owner, settings.sandbox_quota, lambda: _count_sandboxes(owner), "sandboxes")
    check_bytes(settings, owner)


def check_snapshot(settings: Settings, owner: User) -> None:
    """As `check_sandbox`, for a snapshot."""
    _lock(owner)
    _check(owner, settings.snapshot_quota, lambda: _count_snapshots(owner), "snapshots")
    check_bytes(settings, owner)


def _lock(owner: User) -> None:
    User.select(User.id).where(User.id == owner.id).for_update(ROW_LOCK).get()


def check_bytes(settings: Settings, owner: User) -> None:
    """Raises Conflict if what the account has stored, as last measured, is as much as it may be."""
    _check(owner, settings.storage_quota_gb,
           lambda: storage_use.bytes_of(owner.id) // _GB, "GB on disk")


def _check(owner: User, quotas: Mapping[str, int], used: Callable[[], int], what: str) -> None:
    most = quotas.get(owner.plan)
    if most is None:
        return
    found = used()
    if found >= most:
        raise Conflict(f"The account has {found} {what}; the plan {owner.plan} includes {most}."
                       " Delete something first.")


def _count_sandboxes(owner: User) -> int:
    kept = (Sandbox.owner == owner.id) & (Sandbox.status != SandboxStatus.STOPPED)
    return int(Sandbox.select(Sandbox.id).where(kept).count())


def _count_snapshots(owner: User) -> int:
    kept = (Snapshot.owner == owner.id) & ~Snapshot.transient & Snapshot.state.in_(
        (SnapshotState.PENDING, SnapshotState.READY))
    return int(Snapshot.select(Snapshot.id).where(kept).count())
