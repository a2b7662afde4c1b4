"""Removes what rows say is no longer wanted: snapshots that are being deleted, and what the store
holds for nobody.

A deletion: 1. the files on this host; 2. the objects in the store; 3. only then the row is final.
Dying anywhere costs a repetition, since the sweep announces the deletion until the row says so.
"""
import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from models.database import connection, now
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.object_store import ObjectStore, StoredObject, StoreUnavailable
from nodeworker.snapshot_uploads import snapshot_lock
from nodeworker.wiring import NodeDeps
from services.snapshots import deletion, stored_images, stored_objects
from services.snapshots.stored_objects import IMAGES, SNAPSHOTS, folder, image_key, owner_of

log = logging.getLogger(__name__)
_BATCH = 500


def remove_snapshot(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    """Remove a snapshot of this node that is being deleted; failures are logged and tried again
    later."""
    if not deletion.is_due_on(deps.settings.node_id, snapshot_id):
        return
    try:
        with snapshot_lock(deps, snapshot_id):
            deps.driver.delete_snapshot(snapshot_id)
            fault("delete.here")
            store.remove_all(folder(snapshot_id))
            fault("delete.objects_removed")
            with connection():
                deletion.deleted(snapshot_id)
    except (DriverError, StoreUnavailable) as error:
        doing = "is being uploaded" if isinstance(error, VmBusy) else "could not be removed"
        log.warning("snapshot %s %s; tried again soon: %s", snapshot_id, doing, error)
        with connection():
            deletion.failed(snapshot_id)
        return
    log.info("snapshot %s removed", snapshot_id)


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
    for key, stored in _images(store.list_objects(IMAGES)):
        stored_images.adopt(key, stored.size_bytes)
    for key in stored_images.begin_removals(deps.settings.store_grace_s):
        log.info("removing image %s from the store: no snapshot stands on it any more", key)
        store.remove_all(image_key(key))
        fault("sweep.image_removed")
        stored_images.removed(key)


def _images(objects: Iterable[StoredObject]) -> Iterator[tuple[str, StoredObject]]:
    for stored in objects:
        key = owner_of(stored.key)
        if stored.key == image_key(key):
            yield key, stored
