"""Carries the disk of a snapshot to the object store, in the bulk lane, so that it outlives its host.

1. Export the disk to a file of this host. 2. Store the image it stands on, once for all. 3. Store the disk. 4. Only
then the row says `uploaded_to_store`. Dying anywhere, or a store that is away, costs a repetition: the sweep announces
the upload again until the row says so, and objects are written once.
"""
import fcntl
import logging
import tempfile
from pathlib import Path

from models.base import connection, database
from models.snapshots import Snapshot
from models.states import SnapshotState
from nodeworker.host import Host
from nodeworker.hypervisor.driver import DriverError
from nodeworker.store import ObjectStore, StoreUnavailable
from services import uploads

log = logging.getLogger(__name__)


def disk_key(snapshot_id: str) -> str:
    """Object key of a snapshot's disk (qcow2, what differs from its image)."""
    return f"snapshots/{snapshot_id}/rootfs.qcow2"


def image_key(key: str) -> str:
    """Object key of an image's root disk (qcow2)."""
    return f"images/{key}/rootfs.qcow2"


def upload(host: Host, store: ObjectStore, snapshot_id: str) -> None:
    """Upload the disk of a ready snapshot of this node unless that is done; failures are logged and tried again
    later. One at a time on this host: a second announcement waits, and then finds nothing left to do."""
    with (host.settings.node_dir / "upload.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _upload(host, store, snapshot_id)


def _upload(host: Host, store: ObjectStore, snapshot_id: str) -> None:
    with connection():
        row = Snapshot.get_or_none(
            (Snapshot.id == snapshot_id)
            & (Snapshot.node_id == host.settings.node_id)
            & (Snapshot.state == SnapshotState.READY)
            & ~Snapshot.uploaded_to_store
        )
    if row is None:
        return
    try:
        with tempfile.TemporaryDirectory(dir=host.settings.node_dir, prefix="upload-") as folder:
            disk = Path(folder) / "rootfs.qcow2"
            export = host.driver.export_disk(snapshot_id, disk)
            store.put_once(image_key(export.image_key), export.image_file)
            size_bytes = store.put_once(disk_key(snapshot_id), disk)
    except (DriverError, StoreUnavailable) as error:
        log.warning("snapshot %s is not uploaded yet: %s", snapshot_id, error)
        with connection():
            uploads.failed(snapshot_id)
        return
    with connection(), database.atomic():
        uploads.done(snapshot_id, size_bytes)
    log.info("snapshot %s uploaded, %d bytes", snapshot_id, size_bytes)
