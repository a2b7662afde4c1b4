"""Write the disk of a snapshot, and the root disk of its image, as files that another host can
use.

The frozen layers are merged into one qcow2 file that holds only what differs from the image; the
image is compressed once and kept beside it. Both are read by qemu-img at the lowest priority: this
must not slow down anybody's sandbox.
"""
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nodeworker.hypervisor.driver import DiskExport, DriverError, VmNotFound
from nodeworker.hypervisor.qemu.host import Host

_COMPRESSED = ("-c", "-o", "compression_type=zstd", "-O", "qcow2")
_LIMIT_S = 1800.0


def export_disk(host: Host, snapshot_id: str, target: Path) -> DiskExport:
    """See Driver.export_disk."""
    record = host.find_snapshot(snapshot_id)
    if record is None:
        raise VmNotFound(f"no snapshot {snapshot_id} on this host")
    host.check_space()
    image = host.image_for(record.machine)
    layers = [host.layers.path(reference) for reference in record.machine.chain[1:]]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        merged = _merge(image.rootfs, layers, Path(folder))
        _qemu_img("convert", *_COMPRESSED, "-B", str(image.rootfs), "-F", "raw", str(merged),
                  str(target))
    return DiskExport(image.key, _compressed_image(image.rootfs))


def _merge(rootfs: Path, layers: Sequence[Path], folder: Path) -> Path:
    """Merge the layers into one overlay on `rootfs`; the layers themselves are only read.

    Our layers carry no backing file name. Each is copied, the copy gets the file below it as its
    backing file (`rebase -u`), and is committed into that file.
    """
    merged = folder / "merged.qcow2"
    shutil.copyfile(layers[0], merged)
    _qemu_img("rebase", "-u", "-F", "raw", "-b", str(rootfs), str(merged))
    for layer in layers[1:]:
        upper = folder / "upper.qcow2"
        shutil.copyfile(layer, upper)
        _qemu_img("rebase", "-u", "-F", "qcow2", "-b", str(merged), str(upper))
        _qemu_img("commit", "-d", str(upper))
    return merged


def _compressed_image(rootfs: Path) -> Path:
    done = rootfs.with_suffix(".qcow2")
    if not done.exists():
        draft = rootfs.with_suffix(f".{os.getpid()}.draft")
        try:
            _qemu_img("convert", *_COMPRESSED, "-f", "raw", str(rootfs), str(draft))
            draft.rename(done)
        finally:
            draft.unlink(missing_ok=True)
    return done


def _qemu_img(*arguments: str) -> None:
    argv = ["nice", "-n", "19", "qemu-img", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        raise DriverError(f"qemu-img {arguments[0]}: {done.stderr.strip()}")
