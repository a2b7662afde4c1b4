"""Write the disk of a snapshot, and the root disk of its image, as files that mean something
outside this host.

The frozen layers are merged into one qcow2 file that holds only what differs from the image; the
image is compressed once and kept beside it. qemu-img works on copies, without privileges and at the
lowest priority (`qemu_img`): a layer may be what a hostile QEMU made of it, and none of this may
slow down anybody's sandbox. The image itself is not needed to tell what differs from it, so an
empty file of its size stands in for it.
"""
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from nodeworker.disks import qcow2
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.driver import VmNotFound
from nodeworker.hypervisor.host_facts import DiskExport
from nodeworker.hypervisor.qemu.disk.qemu_img import COMPRESSED, QemuImg
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.images_between_hosts import exported_files


def export_disk(host: Host, snapshot_id: str, target: Path) -> DiskExport:
    """See Driver.export_disk."""
    record = host.find_snapshot(snapshot_id)
    if record is None:
        raise VmNotFound(f"no snapshot {snapshot_id} on this host")
    image = host.image_for(record.machine)
    layers = [host.layers.path(reference) for reference in record.machine.chain[1:]]
    # They are copied into one, which is then compressed: perhaps into no less.
    host.disk_floor.check(2 * sum(map(occupied_bytes, layers)))
    qemu_img = QemuImg(host.settings.vm_uid_base)
    copied = partial(_copied, host, qemu_img, record.machine.disk_bytes)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, ExitStack() as stack:
        base = stack.enter_context(qemu_img.new(Path(folder) / "base", image.disk_bytes))
        merged = stack.enter_context(copied(layers[0], Path(folder) / "merged"))
        qemu_img.run("rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", base, merged)
        for layer in layers[1:]:
            path = Path(folder) / "upper"
            with copied(layer, path) as upper:
                _commit(qemu_img, upper, merged, base)
            path.unlink()
        exported = stack.enter_context(qemu_img.new(target))
        qemu_img.run("convert", *COMPRESSED, "-f", "qcow2", "-B", base, "-F", "raw", merged,
                     exported)
        qemu_img.run("rebase", "-u", "-f", "qcow2", "-b", "", exported)
    return DiskExport(image.build_key, exported_files(qemu_img, image))


@contextmanager
def _copied(host: Host, qemu_img: QemuImg, disk_bytes: int, layer: Path,
            target: Path) -> Iterator[str]:
    """A copy of a layer of such a disk, by the name that qemu-img knows it by, if there is room for
    what is written of it: a small file may be read as a large disk. Raises UnsafeLayer,
    NoDiskSpace."""
    with qemu_img.copy(layer, target, overlay=True) as name:
        if qcow2.disk_bytes(target) > disk_bytes:
            raise qcow2.UnsafeLayer("a disk layer says that its disk is larger than it is")
        host.disk_floor.check(qemu_img.measure(name))
        yield name


def _commit(qemu_img: QemuImg, upper: str, merged: str, base: str) -> None:
    """Write what `upper` holds into `merged`. Our layers do not name what they stand on, so the
    copy of one is told."""
    qemu_img.run("rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", merged, upper)
    qemu_img.run("commit", "-f", "qcow2", "-d", upper, also=(merged, base))
