"""Removes what the object store holds for nobody: objects of snapshots that are gone, and images
that no snapshot needs any more."""
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from models.database import now
from nodeworker.faults import fault
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore
from services.snapshots import stored_images, stored_objects
from services.snapshots.stored_objects import IMAGES, SNAPSHOTS, image_folder, owner_of

log = logging.getLogger(__name__)
_BATCH = 500


def sweep_store(deps: NodeDeps, store: ObjectStore) -> None:
    """Remove objects that no row needs and that have not changed for the grace period; none at all
    if they are suspiciously many. Raises StoreUnavailable; what is left then goes the next time."""
    before = now() - timedelta(seconds=deps.settings.store_grace_s)
    orphans = list(_orphans(store, before))
    if len(orphans) > deps.settings.orphan_brake:
        log.error("%d objects look orphaned at once; removing none. Is this the right database?",
                  len(orphans))
    else:
        for key in orphans:
            log.warning("removing object %s, which no snapshot needs", key)
            store.remove_all(key)
    _sweep_images(deps, store)


def _orphans(store: ObjectStore, before: datetime) -> Iterator[str]:
    batch: list[str] = []
    for stored in store.list_objects(SNAPSHOTS):
        if stored.changed_at < before:
            batch.append(stored.key)
        if len(batch) == _BATCH:
            yield from stored_objects.list_unneeded(batch)
            batch = []
    yield from stored_objects.list_unneeded(batch)


def _sweep_images(deps: NodeDeps, store: ObjectStore) -> None:
    sizes: Counter[str] = Counter()
    for stored in store.list_objects(IMAGES):
        sizes[owner_of(stored.key)] += stored.size_bytes
    for key, size_bytes in sizes.items():
        stored_images.adopt(key, size_bytes)
    for key in stored_images.begin_removals(deps.settings.store_grace_s):
        log.info("removing image %s from the store: no snapshot needs it any more", key)
        store.remove_all(image_folder(key))
        fault("sweep.image_removed")
        stored_images.removed(key)
