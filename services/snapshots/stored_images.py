"""Decides which images in the object store stay: those that the row of any snapshot names.

1. An upload names its image in the snapshot's row, and renews `used_at` of the image's row, before
   it looks whether the image is there (`add_reference`).
2. A sweep marks an image that no row names as `removing`, then removes the object, then the row.

Both lock the image's row, so an upload never refers to an object that is being removed: it is to
try again later.
"""
from datetime import timedelta

import peewee

from models.database import ROW_LOCK, connection, database, now
from models.snapshots import Snapshot, StoreImage
from models.states import SnapshotKind, SnapshotState

_HOLDING = (SnapshotState.READY, SnapshotState.DELETING)


class ImageBeingRemoved(Exception):
    """The image is being removed from the store; trying again in a moment helps."""


def add_reference(snapshot_id: str, key: str, size_bytes: int) -> None:
    """Let the snapshot refer to the image `key` (`size_bytes` in the store), which stays there from
    now on. Raises ImageBeingRemoved."""
    with connection(), database.atomic():
        StoreImage.insert(key=key, size_bytes=size_bytes).on_conflict_ignore().execute()
        image = StoreImage.select().where(StoreImage.key == key).for_update(ROW_LOCK).get_or_none()
        if image is None or image.removing:
            raise ImageBeingRemoved(key)
        StoreImage.update(used_at=now(),
                          size_bytes=size_bytes).where(StoreImage.key == key).execute()
        Snapshot.update(image_key=key).where(Snapshot.id == snapshot_id).execute()


def adopt(key: str, size_bytes: int) -> None:
    """Write the row of an image that was found in the store without one; the image stays for the
    grace period at least."""
    with connection():
        StoreImage.insert(key=key, size_bytes=size_bytes).on_conflict_ignore().execute()


def begin_removals(grace_s: float) -> list[str]:
    """Mark the images that nothing refers to and no upload has named for `grace_s` seconds. Returns
    all that are to be removed, also those that an earlier sweep marked and did not remove."""
    unused = now() - timedelta(seconds=grace_s)
    with connection(), database.atomic():
        if not _nameless_uploads().exists():
            for row in list(StoreImage.select().where(~StoreImage.removing
                                                      & (StoreImage.used_at < unused))):
                _mark(row.key)
        return [
            row.key
            for row in StoreImage.select().where(StoreImage.removing).order_by(StoreImage.key)
        ]


def _mark(key: str) -> None:
    image = StoreImage.select().where(StoreImage.key == key).for_update(ROW_LOCK).get_or_none()
    needed = Snapshot.select().where((Snapshot.image_key == key) & Snapshot.state.in_(_HOLDING))
    if image is not None and not needed.exists():
        StoreImage.update(removing=True).where(StoreImage.key == key).execute()


def _nameless_uploads() -> peewee.Select:
    """Disks that were uploaded before rows named their images: while there are any, every image may
    be needed."""
    return Snapshot.select().where(
        Snapshot.image_key.is_null()
        & Snapshot.uploaded_to_store
        & (Snapshot.kind == SnapshotKind.FULL)
        & Snapshot.state.in_(_HOLDING)
    )


def removed(key: str) -> None:
    """The object is gone; the next upload makes it anew."""
    with connection():
        StoreImage.delete().where((StoreImage.key == key) & StoreImage.removing).execute()
