"""Disk layers of a node: frozen qcow2 files shared by sandboxes and snapshots, referred to by name
in their records.

A chain is a tuple of references from the bottom up: `image:<key>` (raw ext4), `template:<key>` (the
disk of a warm image), `layer:<id>`. A layer file keeps its name from the day it is the active layer
of a sandbox until nothing refers to it; freezing it only takes away the right to write. Only a
frozen layer may be in more than one chain. Nothing counts references: the collector reads every
record, while `referring` holds off new ones.
"""
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeworker.disks import qcow2
from nodeworker.disks.durable import sync_directory, sync_file
from nodeworker.disks.holder_notes import HolderNotes
from nodeworker.faults import fault

# Warm images were called templates once. Records of sandboxes that sleep name them so, and a wake
# must find their disks: on disk the old words stay.
WARM_IMAGES = "templates"
_IMAGE_KIND = "image:"
_WARM_IMAGE_KIND = "template"
_LAYER_KIND = "layer:"
# A warm image in the making has such a name, see `images/bake_warm_image.py`.
_IN_THE_MAKING = ".tmp"
# A layer, and the digest that older versions kept of a frozen one.
_SUFFIXES = (".qcow2", ".sha256")


def warm_image_reference(key: str) -> str:
    """The reference to the disk of a warm image."""
    return f"{_WARM_IMAGE_KIND}:{key}"


class LayerStore:
    """Layers under `node_dir/layers`, warm images and images under `image_dir`."""

    def __init__(self, node_dir: Path, image_dir: Path) -> None:
        self._layers = node_dir / "layers"
        self._image_dir = image_dir
        self._layers.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.notes = HolderNotes(self._layers / "holders")

    @property
    def directory(self) -> Path:
        """Where the layers of this node are."""
        return self._layers

    def path(self, reference: str) -> Path:
        """The file behind a reference; raises ValueError for an unknown kind."""
        kind, _, name = reference.partition(":")
        if kind == "image":
            return self._image_dir / "images" / name / "rootfs.raw"
        if kind == _WARM_IMAGE_KIND:
            return self._image_dir / WARM_IMAGES / name / "disk.qcow2"
        if kind == "layer":
            return self._layers / f"{name}.qcow2"
        raise ValueError(f"unknown kind of disk layer: {reference}")

    def open(self, reference: str, *, writable: bool) -> int:
        """A descriptor of the file, for a QEMU; the one place where layers are opened for one.
        Raises UnsafeLayer for an overlay that names other files, and where others read what should
        be `writable`: frozen layers, warm images, images. Root may write to all of them."""
        mode = os.O_RDWR if writable else os.O_RDONLY
        descriptor = os.open(self.path(reference), mode | os.O_CLOEXEC)
        try:
            if writable and not _is_one_guest_s(reference, descriptor):
                raise qcow2.UnsafeLayer(f"{reference} is not to be written to any more")
            if not reference.startswith(_IMAGE_KIND):
                qcow2.check_overlay(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def new_reference(self) -> str:
        """A reference no layer has. Create the file and record the reference within one
        `referring`."""
        return f"layer:{secrets.token_hex(12)}"

    def create(self, reference: str, size_bytes: int) -> None:
        """Make the empty overlay file for `reference`."""
        qcow2.create_overlay(self.path(reference), size_bytes)

    def renew_lost(self, chain: Iterable[str], size_bytes: int) -> bool:
        """Make those of a sandbox's own layers of a disk of `size_bytes` anew of which a power
        failure has left only zeros; True if there was one. Nobody may have them open.

        A create does not flush its layer, and a capture that died has put another on top. Whatever
        flushes anything of a layer flushes its beginning too, so where that is zeros nothing is
        lost that was ever on the disk.
        """
        return any([self._renew_if_lost(reference, size_bytes) for reference in chain])

    def _renew_if_lost(self, reference: str, size_bytes: int) -> bool:
        path = self.path(reference)
        with path.open("rb") as file:
            own = reference.startswith(_LAYER_KIND) and _is_one_guest_s(reference, file.fileno())
            if not own or any(file.read(qcow2.CLUSTER_BYTES)):
                return False
        with self.referring():  # should this die, the collector finds a layer that nobody names
            renewed = self.path(self.new_reference())
            qcow2.create_overlay(renewed, size_bytes)
            sync_file(renewed)
            os.rename(renewed, path)
        sync_directory(self._layers)
        return True

    def is_empty(self, reference: str, size_bytes: int) -> bool:
        """True if nothing was ever written to this layer of a disk of `size_bytes`."""
        return self.path(reference).stat().st_size == qcow2.overlay_bytes(size_bytes)

    def freeze(self, reference: str) -> None:
        """From now on nobody writes this layer; flushed. Only layers of this node may be frozen."""
        descriptor = os.open(self.path(reference), os.O_RDONLY)
        try:
            os.fchown(descriptor, 0, 0)
            os.fchmod(descriptor, 0o400)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def is_frozen(self, reference: str) -> bool:
        """True if nobody writes this layer any more, so that several chains may name it; False
        also without the file."""
        try:
            return not self.path(reference).stat().st_mode & stat.S_IWUSR
        except FileNotFoundError:
            return False

    def check_there(self, chain: Iterable[str]) -> None:
        """Raises FileNotFoundError if a file of `chain` is gone; within `referring`, so that none
        goes afterwards."""
        for reference in chain:
            self.path(reference).stat()

    @contextmanager
    def referring(self) -> Iterator[None]:
        """Hold while taking over references from a record or making a layer, until they are
        recorded: the collector waits."""
        with self._lock(fcntl.LOCK_SH):
            yield

    @contextmanager
    def unreferring(self) -> Iterator[None]:
        """Hold while reading what all records refer to: nobody takes over a reference from one that
        is still to be read to one that was."""
        with self._lock(fcntl.LOCK_EX):
            yield

    def collect(self, referenced: Callable[[], set[str] | None]) -> set[str]:
        """Delete every layer of this node that `referenced()` does not name (None: not known);
        returns what was deleted.

        Nobody is held off while it looks whether there is any such layer: what is found then may
        be one in the making, and is looked at again.
        """
        found = {f"layer:{path.stem}" for path in self._layers.iterdir()
                 if path.suffix in _SUFFIXES}
        references = referenced()
        if references is None or found <= references:
            return set()
        return self.delete(found, referenced)

    def delete(self, suspects: Iterable[str],
               referenced: Callable[[], set[str] | None]) -> set[str]:
        """Delete those layers of `suspects` that `referenced()` does not name (None: not known),
        with new references held off; returns what was deleted."""
        with self.unreferring():
            references = referenced()
            if references is None:
                return set()
            gone = set(suspects) - references
            for reference in gone:
                self.notes.forget(reference)
                for suffix in _SUFFIXES:
                    self.path(reference).with_suffix(suffix).unlink(missing_ok=True)
                    fault("collect.unlinked")
        return {reference.partition(":")[2] for reference in gone}

    def list_paths(self) -> dict[str, list[Path]]:
        """The files of every layer of this node, by reference."""
        found: dict[str, list[Path]] = {}
        for path in self._layers.iterdir():
            if path.suffix in _SUFFIXES:
                found.setdefault(f"layer:{path.stem}", []).append(path)
        return found

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        descriptor = os.open(self._layers / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


def _is_one_guest_s(reference: str, descriptor: int) -> bool:
    """Whether one machine alone has the layer that is open as `descriptor`."""
    own = reference.startswith(_LAYER_KIND)
    baked = reference.startswith(_WARM_IMAGE_KIND) and reference.endswith(_IN_THE_MAKING)
    return (own or baked) and bool(os.fstat(descriptor).st_mode & stat.S_IWUSR)
