"""Brings the disk of another node's snapshot to this host, and its guest image if that is missing:
for a copy that boots here, or for the builder of a run that this node has taken over.

1. One fetch of a snapshot at a time on this host. 2. What the object store gives of the disk is
hashed while it comes; only the disk that was uploaded is taken. 3. The copy stays as long as an
operation or a run of this node needs it (`services/snapshots/needed_on_node.py`); then the
reconciler removes it.
"""
import hashlib
from dataclasses import dataclass
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import NoDiskSpace, Shape
from nodeworker.snapshots.snapshot_lock import snapshot_lock
from nodeworker.wiring import NodeDeps
from objects.store import ObjectMissing, ObjectStore, StoreUnavailable
from services.errors import Unavailable
from services.snapshots import needed_on_node
from services.snapshots.needed_on_node import StoredDisk
from services.snapshots.stored_objects import disk_key, image_file_key


def fetch(deps: NodeDeps, snapshot_id: str) -> None:
    """Have the disk of the snapshot on this host, if it is of another node's machine. Raises
    Unavailable while it cannot be had here, saying why, StoreUnavailable, VmBusy while another
    worker fetches it, DriverError."""
    node_id = deps.settings.node_id
    stored = needed_on_node.find_elsewhere(node_id, snapshot_id)
    if stored is None:
        return
    try:
        with snapshot_lock(deps, snapshot_id):
            # Under the lock: whoever removes a copy looks under it whether it is needed.
            if snapshot_id not in deps.driver.list_snapshots():
                _import(deps, stored)
    except NoDiskSpace as error:
        raise Unavailable(f"Node {node_id} cannot take snapshot {snapshot_id}: {error}.") from error
    fault("fetch.imported")


def _import(deps: NodeDeps, stored: StoredDisk) -> None:
    if stored.image_key is None:
        raise Unavailable(f"Snapshot {stored.id} is on node {stored.node_id} alone: it is not in"
                          " the object store yet.")
    deps.driver.import_disk(stored.id, Shape(stored.vcpus, stored.mem_mb), stored.image_key,
                            _Exported(ObjectStore(deps.settings), stored, stored.image_key))


@dataclass(frozen=True)
class _Exported:
    """What another node has stored of a snapshot and its image."""

    store: ObjectStore
    disk: StoredDisk
    image_key: str

    @property
    def disk_bytes(self) -> int:
        """Size of the disk's object."""
        return self.disk.size_bytes

    def write_disk(self, target: Path) -> None:
        """The disk as it was uploaded; raises StoreUnavailable."""
        if self._write(disk_key(self.disk.id), target) != self.disk.rootfs_sha:
            raise StoreUnavailable(f"the disk of snapshot {self.disk.id} is damaged in the store")

    def write_image_file(self, name: str, target: Path) -> None:
        """A file of the image; raises StoreUnavailable."""
        self._write(image_file_key(self.image_key, name), target)

    def _write(self, key: str, target: Path) -> str:
        """The SHA-256 of what was written."""
        digest = hashlib.sha256()
        try:
            with target.open("xb") as file:
                for piece in self.store.get_stream(key):
                    digest.update(piece)
                    file.write(piece)
        except ObjectMissing as error:
            raise StoreUnavailable(f"{key} is not in the store") from error
        return digest.hexdigest()
