"""Remove the guest images and warm images of an image directory that nothing needs any more.

What keeps an image, and with it its warm images: being `current` or `presets`; a process that works
with it (a worker that was not restarted since `make image`). What keeps an image or a warm image:
the record of a sandbox or snapshot in any node directory that has ever used this image directory. A
node directory that is missing, or has no id, may be a disk that is not mounted: it stops everything
until somebody says that it is gone for good. The locks of those who build images are held
meanwhile.
"""
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from guest.presets import LOCK, POINTER
from nodeworker.disks import directory_id
from nodeworker.disks.layers import WARM_IMAGES, LayerStore, warm_image_reference
from nodeworker.disks.sizes import tree_bytes
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk.layer_references import UnreadableRecord, references
from nodeworker.hypervisor.qemu.images.guest_image import BUILD_LOCK
from nodeworker.hypervisor.qemu.images.image_holders import is_held, registered
from nodeworker.hypervisor.qemu.records import find_warm_image


@dataclass(frozen=True)
class Unneeded:
    """An image or a warm image, as `kind` says, that nothing refers to."""

    kind: str
    path: Path
    size_bytes: int


def prune(image_dir: Path, *, dry_run: bool = False,
          forget_missing: bool = False) -> list[Unneeded]:
    """Remove what nothing needs, warm images before their images; returns it. With `dry_run`
    nothing is removed.

    Raises DriverError, having removed nothing, if a node directory is missing (unless
    `forget_missing`) or a record cannot be read. Repeated after a crash it goes on.
    """
    with _building_locked(image_dir):
        needed = _references(image_dir, forget_missing=forget_missing, dry_run=dry_run)
        found = list(_unneeded(image_dir, needed))
        for each in [] if dry_run else found:
            # The name first: half a directory must never be taken for an image.
            doomed = each.path.with_name(f".pruned-{each.path.name}")
            os.rename(each.path, doomed)
            shutil.rmtree(doomed)
            each.path.with_name(f"{each.path.name}.lock").unlink(missing_ok=True)
        if not dry_run:
            _finish_earlier(image_dir)
    return found


def _references(image_dir: Path, *, forget_missing: bool, dry_run: bool) -> set[str]:
    needed: set[str] = set()
    for node_dir, entry in registered(image_dir).items():
        is_there = node_dir.is_dir()
        if is_there:
            try:
                with LayerStore(node_dir, image_dir).unreferring():
                    needed |= references(node_dir)
            except UnreadableRecord as error:
                raise DriverError(f"nothing is pruned while {error} cannot be read") from error
        if directory_id.find(node_dir) is None and not forget_missing:
            raise DriverError(
                f"the node directory {node_dir} is not there: mount its disk, or say"
                " --forget-missing if it is gone"
            )
        if not is_there and not dry_run:
            entry.unlink()
    return needed


def _unneeded(image_dir: Path, needed: set[str]) -> Iterator[Unneeded]:
    images = image_dir / "images"
    kept = {path.name for path in _directories(images) if is_held(path)} | {
        os.path.basename(os.path.realpath(images / name)) for name in ("current", POINTER)
    }
    for path in _directories(image_dir / WARM_IMAGES):
        machine = find_warm_image(path)
        # Without a record it is being baked, or is what a dead bake left; both are the node
        # worker's business.
        if machine is None or machine.made_on.image in kept:
            continue
        if warm_image_reference(path.name) not in needed:
            yield Unneeded("warm image", path, tree_bytes(path))
    for path in _directories(images):
        finished = (path / "image.json").exists()
        if finished and path.name not in kept and f"image:{path.name}" not in needed:
            yield Unneeded("image", path, tree_bytes(path))


def _directories(parent: Path) -> list[Path]:
    paths = sorted(parent.iterdir()) if parent.is_dir() else []
    return [
        path for path in paths
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    ]


def _finish_earlier(image_dir: Path) -> None:
    for doomed in image_dir.glob("*/.pruned-*"):
        shutil.rmtree(doomed, ignore_errors=True)


@contextmanager
def _building_locked(image_dir: Path) -> Iterator[None]:
    with ExitStack() as held:
        for name in (BUILD_LOCK, LOCK):
            try:
                held.enter_context(locks.hold(image_dir / name, wait=False))
            except BlockingIOError as error:
                raise DriverError("an image is being built or fetched; try again when that is"
                                  " done") from error
        yield
