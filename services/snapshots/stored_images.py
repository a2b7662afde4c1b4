"""Decides which images in the object store stay: those that the row of any snapshot names.

1. An upload names its image in the snapshot's row, and touches the image's own, before it looks
   whether the image is there (`rely_on`). 2. A sweep marks an image that no row names as
   `removing`, then removes the object, then the row. Both lock the image's row, so an upload never
   relies on an object that is about to go: it is told to come back later.
"""
from datetime import timedelta

import peewee

from models.database import ROW_LOCK, connection, database, now
from models.snapshots import Snapshot
from models.states import SnapshotKind, SnapshotState
from models.storage import StoreImage

_HOLDING = (SnapshotState.READY, SnapshotState.DELETING)


class ImageIsGoing(Exception):
    """The image is just being removed from the store; try again in a moment."""


def rely_on(snapshot_id: str, key: str, size_bytes: int) -> None:
    """From now on the image `key`, `size_bytes` large in the store, stays there for this snapshot.
    Raises ImageIsGoing."""
    with connection(), database.atomic():
        StoreImage.insert(key=key, size_bytes=size_bytes).on_conflict_ignore().execute()
        image = StoreImage.select().where(StoreImage.key == key).for_update(ROW_LOCK).get_or_none()
        if image is None or image.removing:
            raise ImageIsGoing(key)
        StoreImage.update(used_at=now(),
                          size_bytes=size_bytes).where(StoreImage.key == key).execute()
        Snapshot.update(image_key=key).where(Snapshot.id == snapshot_id).execute()


def adopt(key: str, size_bytes: int) -> None:
    """Keep account of an image that was found in the store without a row; it stays for the grace
    period at least."""
    with connection():
        StoreImage.insert(key=key, size_bytes=size_bytes).on_conflict_ignore().execute()


def begin_removals(grace_s: float) -> list[str]:
    """Mark the images that nothing needs and nothing relied on for `grace_s` seconds; returns all
    that are to be removed, those included that an earlier sweep did not come to the end of."""
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
