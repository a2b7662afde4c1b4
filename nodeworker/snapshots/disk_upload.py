"""Carries the disk of a snapshot to the object store, in the bulk lane, so that it outlives its
host.

1. Export the disk to a file of this host. 2. Say that the snapshot needs its image, and
store that, once for all. 3. Store the disk, all its layers in one file. 4. Only then the row says
`uploaded_to_store`, and the SHA-256 of what was stored.
Dying anywhere, or a store or database that is away, costs a repetition: the sweep announces the
upload again until the row says so, and objects are written once. A lock of the host keeps a second
upload, and the deletion, of the same snapshot away meanwhile.
"""
import hashlib
import logging
import shutil
import tempfile
from pathlib import Path

from models.database import DatabaseUnavailable, when_database_answers
from nodeworker.faults import fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, VmBusy, VmNotFound
from nodeworker.snapshots.snapshot_lock import snapshot_lock
from nodeworker.wiring import NodeDeps
from objects.store import ObjectMissing, ObjectStore, StoreUnavailable
from services.snapshots import disk_upload, stored_images
from services.snapshots.stored_images import ImageBeingRemoved
from services.snapshots.stored_objects import disk_key, image_file_key

log = logging.getLogger(__name__)
# Held by the one upload of this host.
_LOCK = "upload.lock"
_WORK = "work-"
_PIECE_BYTES = 1024 * 1024
_FAILURES = (DriverError, StoreUnavailable, ObjectMissing, ImageBeingRemoved,
             *DatabaseUnavailable)


def upload(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    """Upload the disk of a ready snapshot of this node unless that is done; failures are logged and
    tried again later. One at a time on this host: a second announcement waits, and then finds
    nothing left to do."""
    try:
        with locks.hold(deps.settings.node_dir / _LOCK), snapshot_lock(deps, snapshot_id):
            if when_database_answers(
                    lambda: disk_upload.is_due_on(deps.settings.node_id, snapshot_id)):
                _upload(deps, store, snapshot_id)
    except VmBusy:
        log.info("snapshot %s is being deleted", snapshot_id)


def forget_dead(deps: NodeDeps) -> None:
    """At start of the bulk lane: remove what uploads of an earlier life left half-made, unless one
    is at work again."""
    with locks.nobody_at_work(deps.settings.node_dir / _LOCK) as is_mine:
        for path in (deps.settings.node_dir / "uploads").glob(f"{_WORK}*") if is_mine else ():
            shutil.rmtree(path, ignore_errors=True)


def _upload(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=deps.settings.node_dir / "uploads",
                                         prefix=_WORK) as folder:
            disk = Path(folder) / "rootfs.qcow2"
            export = deps.driver.export_disk(snapshot_id, disk)
            files = export.image_files
            stored_images.add_reference(snapshot_id, export.image_key,
                                        sum(path.stat().st_size for path in files.values()))
            for name, path in files.items():
                store.put_once(image_file_key(export.image_key, name), path)
            fault("upload.image_stored")
            size_bytes, sha = _store(store, disk_key(snapshot_id), disk)
            fault("upload.stored")
        when_database_answers(lambda: disk_upload.done(snapshot_id, size_bytes, sha))
    except _FAILURES as error:
        lost = isinstance(error, VmNotFound)
        log.warning("snapshot %s %s: %s", snapshot_id,
                    "cannot be uploaded" if lost else "is not uploaded yet", error)
        said = f"{type(error).__name__}: {error}"
        when_database_answers(lambda: disk_upload.failed(snapshot_id, said, for_good=lost))
        return
    log.info("snapshot %s uploaded, %d bytes", snapshot_id, size_bytes)


def _store(store: ObjectStore, key: str, disk: Path) -> tuple[int, str]:
    """Store the file, and return its size and the SHA-256 of the object. One that an earlier
    attempt left is read back: another export may have other bytes."""
    was_there = store.find_size(key) == disk.stat().st_size
    size_bytes = store.put_once(key, disk)
    digest = hashlib.sha256()
    if was_there:
        for piece in store.get_stream(key):
            digest.update(piece)
    else:
        with disk.open("rb") as content:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
    return size_bytes, digest.hexdigest()
