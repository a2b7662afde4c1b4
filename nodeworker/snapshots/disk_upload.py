"""Carries the disk of a snapshot to the object store, in the bulk lane, so that it outlives its
host.

1. Export the disk to a file of this host. 2. Say that the snapshot needs its image, and
store that, once for all. 3. Store the disk, all its layers in one file. 4. Only then the row says
`uploaded_to_store`, and the SHA-256 of what was stored.
Dying anywhere, or a store or database that is away, costs a repetition: the sweep announces the
upload again until the row says so, and objects are written once. A lock of the host keeps the
deletion of the same snapshot away meanwhile.
One upload at a time: a job that finds another at work leaves a note and ends, so that the lane goes
on; whoever uploads looks at the notes when it is done, and announces the next in turn.
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
from services.operations import outbox
from services.snapshots import disk_upload, stored_images
from services.snapshots.stored_images import ImageBeingRemoved
from services.snapshots.stored_objects import disk_key, image_file_key

log = logging.getLogger(__name__)
# Held by the one upload of this host.
_LOCK = "upload.lock"
_WORK = "work-"
# The end of the name of a note: this snapshot's upload came while another was under way.
_WAITS = ".waits"
_PIECE_BYTES = 1024 * 1024
_FAILURES = (DriverError, StoreUnavailable, ObjectMissing, ImageBeingRemoved,
             *DatabaseUnavailable)


def upload(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    """Upload the disk of a ready snapshot of this node unless that is done, or another upload is
    under way on this host, which then tells of this one; failures are logged and tried again
    later."""
    note = _folder(deps) / f"{snapshot_id}{_WAITS}"
    note.parent.mkdir(mode=0o700, exist_ok=True)
    note.touch()  # first, because the other looks after it has let the lock go
    with locks.nobody_at_work(deps.settings.node_dir / _LOCK) as is_mine:
        if not is_mine:
            return
        try:
            with snapshot_lock(deps, snapshot_id):
                if when_database_answers(
                        lambda: disk_upload.is_due_on(deps.settings.node_id, snapshot_id)):
                    _upload(deps, store, snapshot_id)
        except VmBusy:
            log.info("snapshot %s is being deleted", snapshot_id)
        note.unlink(missing_ok=True)
    _tell_of_next(deps, snapshot_id)


def _tell_of_next(deps: NodeDeps, ended: str) -> None:
    """Announce the next of the uploads that came while that of `ended` was under way. If it is lost
    the sweep announces it."""
    notes = {path.stem: path for path in _folder(deps).glob(f"*{_WAITS}")}
    turn = when_database_answers(
        lambda: disk_upload.in_turn(deps.settings.node_id, notes, ended))
    for snapshot_id in notes.keys() - set(turn):
        notes[snapshot_id].unlink(missing_ok=True)
    if turn:
        outbox.flush(deps.queue, when_database_answers(lambda: disk_upload.announce(turn[0])))


def _folder(deps: NodeDeps) -> Path:
    return deps.settings.node_dir / "uploads"


def forget_dead(deps: NodeDeps) -> None:
    """At start of the bulk lane: remove what uploads of an earlier life left half-made, unless one
    is at work again."""
    with locks.nobody_at_work(deps.settings.node_dir / _LOCK) as is_mine:
        for path in _folder(deps).glob(f"{_WORK}*") if is_mine else ():
            shutil.rmtree(path, ignore_errors=True)


def _upload(deps: NodeDeps, store: ObjectStore, snapshot_id: str) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=_folder(deps), prefix=_WORK) as folder:
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
