"""Copy the RAM of a warm image ahead of need, so that a create takes a copy by a rename instead of
waiting while 90 MB are copied, and a capture writes only what its guest has changed.

A spare is a finished copy under its final name; half-made ones have another. One process at a time
makes them. They are not flushed: after a power failure one may have its full size and holes in
place of memory, so the name also says in which run of the host it was made, and only those of this
run are taken.
"""
import os
import secrets
import shutil
import threading
import time
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.rundir import boot_id

_HALF_MADE = ".half"
# After a start the CPU belongs to the new guest and its first caller.
_CALM_S = 0.3


class SparePool:
    """Up to `target` spares of each warm image that creates and captures have used, under
    `directory/<warm image>/`."""

    def __init__(self, directory: Path, target: int) -> None:
        self._directory = directory
        self._target = target
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def take(self, warm_image: Path, ram: Path) -> bool:
        """Put a spare of this warm image in place as `ram`; False if there is none."""
        for spare in self._ready(warm_image):
            try:
                os.rename(spare, ram)
                return True
            except FileNotFoundError:
                continue  # another create was quicker
        return False

    def refill_in_background(self, warm_image: Path) -> None:
        """Make spares of this warm image up to the target, a moment later and in a thread of its
        own."""
        if len(self._ready(warm_image)) < self._target:
            threading.Thread(target=self._refill, args=(warm_image, ), name="spares",
                             daemon=True).start()

    def reclaim(self, warm_images: set[str]) -> None:
        """Remove half-made spares, and those of warm images that are no more or of before the host
        was started."""
        with locks.hold(self._directory / "lock"):
            for folder in [path for path in self._directory.iterdir() if path.is_dir()]:
                if folder.name not in warm_images:
                    shutil.rmtree(folder, ignore_errors=True)
                for path in folder.glob("*"):
                    if not _is_ready(path):
                        path.unlink(missing_ok=True)

    def _refill(self, warm_image: Path) -> None:
        time.sleep(_CALM_S)
        try:
            with locks.hold(self._directory / "lock"):
                while len(self._ready(warm_image)) < self._target:
                    self._make(warm_image)
        except OSError:
            return  # a full disk or a removed directory: creates copy for themselves

    def _make(self, warm_image: Path) -> None:
        folder = self._directory / warm_image.name
        folder.mkdir(exist_ok=True, mode=0o700)
        half = folder / f"{secrets.token_hex(8)}{_HALF_MADE}"
        try:
            with (warm_image / "ram").open("rb") as source, half.open("w+b") as copy:
                os.fchmod(copy.fileno(), 0o600)
                sparse.clone(source.fileno(), copy.fileno())
            os.rename(half, half.with_suffix(_of_this_run()))
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _ready(self, warm_image: Path) -> list[Path]:
        return [path for path in (self._directory / warm_image.name).glob("*") if _is_ready(path)]


def _is_ready(path: Path) -> bool:
    return path.suffix == _of_this_run()


def _of_this_run() -> str:
    """How the name of a spare ends that was made since the host was started."""
    return f".{boot_id()}"
