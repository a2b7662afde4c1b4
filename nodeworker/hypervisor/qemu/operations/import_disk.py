"""Make a snapshot of this host from the disk that another host has exported: without memory, on
the very build of the guest image that the disk stood on there.

The disk becomes one layer of the kind that we make ourselves. 1. It is fetched into the snapshot's
working directory. 2. The image is fetched unless it is here (`images/images_between_hosts.py`), and
the disk converted. 3. While no layer is collected it gets its name and the snapshot its record. The
rename of the directory is the commit point.
"""
import os
from contextlib import ExitStack
from pathlib import Path

from nodeworker.disks import qcow2
from nodeworker.disks.durable import sync_directory, write_json
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.host_facts import ExportedFiles
from nodeworker.hypervisor.qemu.disk.qemu_img import QemuImg
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.guest_image import Image
from nodeworker.hypervisor.qemu.images.images_between_hosts import image_of_build
from nodeworker.hypervisor.qemu.operations.snapshot import commit, making
from nodeworker.hypervisor.qemu.records import Machine, SnapshotRecord


def import_disk(host: Host, snapshot_id: str, shape: Shape, image_key: str,
                files: ExportedFiles) -> None:
    """See Driver.import_disk."""
    host.disk_floor.check(files.disk_bytes)
    qemu_img = QemuImg(host.settings.vm_uid_base)
    with ExitStack() as held:
        directory = held.enter_context(making(host, snapshot_id))
        if host.find_snapshot(snapshot_id) is not None:
            return
        fetched, converted = directory / "fetched.qcow2", directory / "disk.qcow2"
        files.write_disk(fetched)
        # Not before: a large disk must hold up nobody's image.
        image = held.enter_context(
            image_of_build(host.image_dir, qemu_img, image_key, files.write_image_file))
        _convert(host, qemu_img, image, fetched, converted)
        fetched.unlink()
        write_json(directory / "token", {"token": image.agent_token})
        with host.layers.referring():
            layer = host.layers.new_reference()
            os.rename(converted, host.layers.path(layer))
            host.layers.freeze(layer)
            sync_directory(host.layers.directory)
            host.layers.notes.add([layer], host.snapshots / snapshot_id)
            commit(host, directory, SnapshotRecord(
                snapshot_id, _machine(host, image, shape, layer),
                occupied_bytes(host.layers.path(layer)), 0.0, has_memory=False))


def _machine(host: Host, image: Image, shape: Shape, layer: str) -> Machine:
    path = host.layers.path(layer)
    return Machine(shape, (f"image:{image.key}", layer), qcow2.disk_bytes(path), host.tuple)


def _convert(host: Host, qemu_img: QemuImg, image: Image, disk: Path, target: Path) -> None:
    """Write `disk` as an overlay that is not compressed, if there is room for all of it: gigabytes
    may have been compressed into little. As in an export an empty file stands in for the image,
    which need not be read."""
    with ExitStack() as stack:
        base = stack.enter_context(
            qemu_img.new(target.with_suffix(".base"), image.disk_bytes))
        source = stack.enter_context(qemu_img.lend(disk))
        host.disk_floor.check(qemu_img.measure(source))
        made = stack.enter_context(qemu_img.new(target))
        qemu_img.run("rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", base, source)
        qemu_img.run("convert", "-f", "qcow2", "-O", "qcow2", "-B", base, "-F", "raw", source,
                     made)
        qemu_img.run("rebase", "-u", "-f", "qcow2", "-b", "", made)
    target.with_suffix(".base").unlink()
