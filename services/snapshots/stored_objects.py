"""How the objects of snapshots are named in the store, and which of them are still needed.

A snapshot has a folder of its own. Images are apart, since several snapshots share one; which of
those are needed is in `services/snapshots/stored_images.py`.
"""
from collections.abc import Sequence

from models.database import connection
from models.snapshots import Snapshot
from models.states import SnapshotKind, SnapshotState

SNAPSHOTS, IMAGES = "snapshots/", "images/"


def folder(snapshot_id: str) -> str:
    """Prefix of everything that the store may hold of a snapshot."""
    return f"{SNAPSHOTS}{snapshot_id}/"


def disk_key(snapshot_id: str) -> str:
    """Object key of a snapshot's disk (qcow2, what differs from its image)."""
    return f"{folder(snapshot_id)}rootfs.qcow2"


def archive_key(snapshot_id: str, attempt: int) -> str:
    """Object key of one attempt to archive a directory."""
    return f"{folder(snapshot_id)}project-{attempt}.tar.gz"


def image_folder(key: str) -> str:
    """Prefix of everything that the store may hold of an image."""
    return f"{IMAGES}{key}/"


def image_file_key(key: str, name: str) -> str:
    """Object key of a file of an image."""
    return f"{image_folder(key)}{name}"


def owner_of(key: str) -> str:
    """Id of the snapshot, or key of the image, whose object `key` names."""
    return key.split("/")[1]


def list_unneeded(keys: Sequence[str]) -> list[str]:
    """Those object keys of snapshots that no row needs. Ask after the objects were seen: a row
    comes before its objects and goes after them."""
    with connection():
        rows = {
            row.id: row
            for row in Snapshot.select().where(Snapshot.id.in_({owner_of(key) for key in keys}))
        }
    return [key for key in keys if not _needs(rows.get(owner_of(key)), key)]


def _needs(row: Snapshot | None, key: str) -> bool:
    if row is None or row.state in (SnapshotState.FAILED, SnapshotState.DELETED):
        return False
    if row.state in (SnapshotState.PENDING, SnapshotState.DELETING):
        return True
    return key == (row.archive_key if row.kind == SnapshotKind.FILES_ONLY else disk_key(row.id))
