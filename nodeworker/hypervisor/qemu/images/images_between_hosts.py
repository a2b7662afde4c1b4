"""Guest images between hosts: which files of one are exported, and how one is made of those again.

A copy of another host's snapshot boots on the very build of the image that its disk stands on. 1.
Nobody builds or removes images of this host until the copy has its record, which keeps the image
from then on (`prune.py`). 2. One image is imported at a time. 3. Its files are fetched into a
directory that nobody takes for an image, which gets its name when they are complete: the key of the
build, since this host may have a build of its own of the same recipe. What a dead import left is
removed by the next one.
"""
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nodeworker.disks.durable import sync_directory, sync_file
from nodeworker.faults import fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk.qemu_img import COMPRESSED, QemuImg
from nodeworker.hypervisor.qemu.images.guest_image import (
    BUILD_LOCK,
    Image,
    find_image,
    list_images,
    load_image,
)

_ROOTFS, _DESCRIPTION = "rootfs.qcow2", "image.json"
_WORK_PREFIX = ".fetching-"
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]*")


def exported_files(qemu_img: QemuImg, image: Image) -> Mapping[str, Path]:
    """The files of an image by name, its root disk compressed; what describes it comes last."""
    machine = [path for path in (image.kernel, image.initrd) if path is not None]
    files = {_ROOTFS: _compressed(qemu_img, image.rootfs), **{path.name: path for path in machine}}
    return files | {_DESCRIPTION: image.directory / _DESCRIPTION}


@contextmanager
def image_of_build(image_dir: Path, qemu_img: QemuImg, build_key: str,
                   fetch: Callable[[str, Path], None]) -> Iterator[Image]:
    """The image of this build, which stays in the block; made of what `fetch` writes unless it is
    here. After failure nothing of it is. Raises DriverError, and what `fetch` raises."""
    with locks.hold(image_dir / BUILD_LOCK, shared=True):
        image = _find(image_dir, build_key)
        if image is None:
            with locks.hold(image_dir / ".import.lock"):
                image = _find(image_dir, build_key) or _import(image_dir / "images", qemu_img,
                                                               build_key, fetch)
        yield image


def _find(image_dir: Path, build_key: str) -> Image | None:
    return next((each for each in list_images(image_dir) if each.build_key == build_key), None)


def _import(images: Path, qemu_img: QemuImg, build_key: str,
            fetch: Callable[[str, Path], None]) -> Image:
    if not _KEY.fullmatch(build_key):
        raise DriverError(f"{build_key} is no key of a guest image")
    for left in images.glob(f"{_WORK_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    work = images / f"{_WORK_PREFIX}{build_key}"
    work.mkdir(mode=0o700)
    try:
        fetch(_DESCRIPTION, work / _DESCRIPTION)
        image = find_image(work)
        if image is None or image.build_key != build_key:
            raise DriverError(f"what was exported as guest image {build_key} is not that build")
        for path in (image.kernel, image.initrd):
            if path is not None:
                _check_inside(path, work)
                fetch(path.name, path)
        _check_inside(image.rootfs, work)
        fetch(_ROOTFS, work / _ROOTFS)
        _decompress(qemu_img, work / _ROOTFS, image.rootfs)
        for path in work.iterdir():
            path.chmod(0o600)
            sync_file(path)
        fault("fetch.image_written")
        os.rename(work, images / build_key)
        sync_directory(images)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return load_image(images / build_key)


def _check_inside(path: Path, work: Path) -> None:
    """What describes an image comes from outside, and names its files."""
    if path.parent != work or path.name in (_DESCRIPTION, _ROOTFS, "", "..", "."):
        raise DriverError(f"a guest image has a file named {path}")


def _compressed(qemu_img: QemuImg, rootfs: Path) -> Path:
    """The root disk, compressed once and kept beside it. One worker of this host does it at a time;
    what one that was killed has left goes with the next, whether that has to compress or not."""
    done = rootfs.with_suffix(".qcow2")
    with locks.hold(rootfs.with_name(".export.lock")):
        _remove_drafts(rootfs)
        if not done.exists():
            draft, copied = rootfs.with_suffix(".draft"), rootfs.with_suffix(".copy")
            try:
                with (qemu_img.copy(rootfs, copied, overlay=False) as raw,
                      qemu_img.new(draft) as file):
                    qemu_img.run("convert", *COMPRESSED, "-f", "raw", raw, file)
                sync_file(draft)  # what has the name is trusted for as long as the image is here
                draft.rename(done)
            finally:
                _remove_drafts(rootfs)
    return done


def _remove_drafts(rootfs: Path) -> None:
    """Earlier workers named theirs after themselves."""
    for path in rootfs.parent.iterdir():
        if path.name.startswith(f"{rootfs.stem}.") and path.suffix in (".draft", ".copy"):
            path.unlink(missing_ok=True)


def _decompress(qemu_img: QemuImg, source: Path, target: Path) -> None:
    copied = source.with_suffix(".copy")
    with qemu_img.copy(source, copied, overlay=False) as compressed, qemu_img.new(target) as raw:
        qemu_img.run("convert", "-f", "qcow2", "-O", "raw", compressed, raw)
    copied.unlink()
