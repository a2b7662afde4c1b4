"""Removes what the object store holds for nobody: objects of snapshots that are gone, what a worker
has stored of a version of an app after that was removed, and images that no snapshot needs any
more."""
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

from models.database import now
from nodeworker.faults import fault
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore
from services.deploys import version_prefixes
from services.snapshots import stored_images, stored_objects
from services.snapshots.stored_objects import IMAGES, SNAPSHOTS, image_folder, owner_of

log = logging.getLogger(__name__)
_BATCH = 500


def sweep_store(deps: NodeDeps, store: ObjectStore) -> None:
    """Remove objects that no row needs and that have not changed for the grace period; none at all
    if they are suspiciously many. Raises StoreUnavailable; what is left then goes the next time."""
    before = now() - timedelta(seconds=deps.settings.store_grace_s)
    orphans, versions = list(_orphans(store, before)), list(_orphan_versions(store, before))
    number = len(orphans) + len(versions)
    if number > deps.settings.orphan_brake:
        log.error("%d objects look orphaned at once; removing none. Is this the right database?",
                  number)
    else:
        for key in orphans:
            log.warning("removing object %s, which no snapshot needs", key)
            store.remove_all(key)
        for prefix in versions:
            log.warning("removing %s, which no version of an app needs", prefix)
            version_prefixes.collect_unknown(prefix)
    _sweep_images(deps, store)


def _orphans(store: ObjectStore, before: datetime) -> Iterator[str]:
    for batch in _batches(stored.key for stored in store.list_objects(SNAPSHOTS)
                          if stored.changed_at < before):
        yield from stored_objects.list_unneeded(batch)


def _orphan_versions(store: ObjectStore, before: datetime) -> Iterator[str]:
    """Their prefixes. Of the versions that are known not one object is listed: an app may have
    20,000."""
    folders = (version for app in store.list_folders(f"{version_prefixes.APPS}/")
               for version in store.list_folders(app))
    for batch in _batches(folders):
        for prefix in version_prefixes.list_unknown(batch):
            changed = [stored.changed_at for stored in store.list_objects(prefix)]
            if changed and max(changed) < before:
                yield prefix


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while batch := list(islice(left, _BATCH)):
        yield batch


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
