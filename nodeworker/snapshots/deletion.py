"""Removes a snapshot that is being deleted: 1. its files on this host; 2. its objects in the store;
3. only then its row is final.

Dying anywhere costs a repetition, since the deletion is announced until the row says so.
"""
import logging

from models.database import when_database_answers
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.snapshots.snapshot_lock import snapshot_lock
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore, StoreUnavailable
from services.sandboxes.freed_when_stopped import end_snapshot
from services.snapshots import deletion
from services.snapshots.stored_objects import folder

log = logging.getLogger(__name__)


def remove_snapshot(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    """Remove a snapshot of this node that is being deleted; failures are logged and tried again
    later."""
    if not when_database_answers(lambda: deletion.is_due_on(deps.settings.node_id, snapshot_id)):
        return
    try:
        with snapshot_lock(deps, snapshot_id):
            deps.driver.delete_snapshot(snapshot_id)
            fault("delete.here")
            store.remove_all(folder(snapshot_id))
            fault("delete.objects_removed")
            when_database_answers(lambda: end_snapshot(snapshot_id, deletion.deleted))
    except (DriverError, StoreUnavailable) as error:
        doing = "is being uploaded" if isinstance(error, VmBusy) else "could not be removed"
        log.warning("snapshot %s %s; tried again soon: %s", snapshot_id, doing, error)
        when_database_answers(lambda: deletion.failed(snapshot_id))
        return
    log.info("snapshot %s removed", snapshot_id)
