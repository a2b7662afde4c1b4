"""What is uploaded of a snapshot is its disk, byte for byte, on the image it stands on, and a
machine that knows nothing of this node boots from it."""
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bin.stack import running as stacks
from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor.host_facts import DiskExport
from tests.host.driver_lab import SHAPE, Lab
from tests.host.qemu_img import opened, qemu_img

# Told on the console when the disk has booted as far as services start.
TELL = """
cd /etc/systemd/system && mkdir -p multi-user.target.wants
ln -s ../tell.service multi-user.target.wants/
cat > tell.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sha256sum /root/noise > /dev/console; systemctl reboot -ff'
END
sync
"""


@pytest.mark.parametrize("grown", [False, True], ids=["as made", "grown"])
def test_an_exported_disk_is_the_disk_of_the_snapshot(real, tmp_path, grown):
    spec = real.create()
    if grown:
        real.driver.grow_disk(spec.sandbox_id, 20 * 1024**3)
        assert real.agent(spec).grow_disk(20 * 1024**3).total_bytes > 19 * 1024**3
    real.agent(spec).write_file("/root/noise", os.urandom(3 << 20))
    real.shell(spec, "sync")
    real.driver.snapshot(spec.sandbox_id, "snapexport")
    disk = tmp_path / "disk.qcow2"
    export = real.driver.export_disk("snapexport", disk)
    qemu_img("check", str(disk))
    machine = read_json(
        real.settings.node_dir / "snapshots" / "snapexport" / "snapshot.json")["machine"]
    layers = real.driver.host.layers
    original = opened(layers.path(machine["chain"][0]), image_format="raw")
    for reference in machine["chain"][1:]:
        original = opened(layers.path(reference), original)
    image = export.image_files["rootfs.qcow2"]
    exported = opened(disk, opened(image))
    told = qemu_img("compare", f"json:{json.dumps(exported)}", f"json:{json.dumps(original)}")
    assert "Images are identical" in told
    assert disk.stat(
    ).st_size < image.stat().st_size / 4, "only what differs from the image"


@pytest.fixture
def another_host(real):
    """A node of another host: there the same recipe of the guest image was built anew."""
    stack = stacks.private_stack("test-elsewhere", {
        "SVC_DRIVER": "qemu", "SVC_KEPT_MACHINES": "0", "SVC_WARM_SPARES": "0",
        "SVC_PREPARED_PROCESSES": "0", "SVC_SLOT_POOL": "0"}, processes=())
    try:
        images, there = Path(stack.site.values["SVC_DATA_DIR"]) / "images", real.driver.host
        stack.site.values["SVC_IMAGE_DIR"] = str(images)
        built = images / "images" / there.image.key
        shutil.copytree(there.image.directory, built, copy_function=os.link)
        described = {**read_json(built / "image.json"), "agentToken": "of a build of its own"}
        (built / "image.json").unlink()
        write_json(built / "image.json", described)
        (images / "images" / "current").symlink_to(built.name)
        for known in there.image_dir.glob("*.json"):
            shutil.copy(known, images)
        yield Lab(stack.site.values)
    finally:
        stack.destroy()


@dataclass
class Exported:
    """The files of an export, and which were asked for."""

    export: DiskExport
    disk: Path
    asked: list[str]

    @property
    def disk_bytes(self):
        return self.disk.stat().st_size

    def write_disk(self, target):
        self.asked.append("disk")
        shutil.copy(self.disk, target)

    def write_image_file(self, name, target):
        self.asked.append(name)
        shutil.copy(self.export.image_files[name], target)


def export(lab, path):
    """The disk of a new machine with a file, in a snapshot that is gone, as is the machine."""
    spec = lab.create()
    lab.agent(spec).write_file("/root/noise", b"noise")
    lab.agent(spec).sync()
    lab.driver.snapshot(spec.sandbox_id, "snaphere")
    exported = Exported(lab.driver.export_disk("snaphere", path), path, [])
    lab.driver.delete_snapshot("snaphere")
    lab.driver.destroy(spec.sandbox_id)
    return exported


def check_copies(lab, exported, **options):
    for _ in range(2):
        lab.driver.import_disk("snapthere", SHAPE, exported.export.image_key, exported)
    assert exported.asked.count("disk") == 1 and "snapthere" in lab.driver.list_snapshots()
    assert exported.export.image_key in lab.driver.image_builds()
    copy = lab.spec("snapthere", **options)
    assert lab.driver.create(copy).cold
    assert lab.agent(copy).read_file("/root/noise", 100) == b"noise"
    return copy


def test_an_exported_disk_is_a_snapshot_of_another_node(lab, tmp_path):
    exported = export(lab, tmp_path / "disk")
    check_copies(lab, exported, from_disk=True)
    assert exported.asked == ["disk"], "the image is here"


def test_an_exported_disk_is_a_snapshot_of_another_node_with_its_image(real, another_host,
                                                                       tmp_path):
    exported = export(real, tmp_path / "disk")
    assert exported.export.image_key not in another_host.driver.image_builds()
    copy = check_copies(another_host, exported)
    assert exported.asked == ["disk", "image.json", "vmlinuz", "rootfs.qcow2"]
    another_host.driver.hibernate(copy.sandbox_id)
    assert not another_host.driver.wake(copy).cold, "its memory fits the image that was fetched"
    assert another_host.shell(copy, "cat /root/noise") == "noise"
    another_host.clean()


def test_an_image_is_compressed_once(real, tmp_path):
    spec = real.create()
    real.driver.snapshot(spec.sandbox_id, "snaponce")
    first, second = (
        real.driver.export_disk("snaponce", tmp_path / name).image_files["rootfs.qcow2"].stat()
        for name in ("one", "two"))
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)


def test_a_machine_boots_from_an_exported_disk(real, tmp_path):
    spec = real.create()
    noise = os.urandom(1 << 20)
    real.agent(spec).write_file("/root/noise", noise)
    real.shell(spec, TELL)
    real.driver.snapshot(spec.sandbox_id, "snapboots")
    disk = tmp_path / "disk.qcow2"
    export = real.driver.export_disk("snapboots", disk)
    host = real.driver.host
    image = host.image_for(host.find_snapshot("snapboots").machine)
    boot = ["qemu-system-x86_64", "-M", "microvm,acpi=off,pit=on,pic=on,rtc=on", "-m", "1024",
            "-cpu", "max", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-serial", "stdio", "-kernel", str(image.kernel),
            "-append", host.kernel_command_line(image),
            "-blockdev", json.dumps({"node-name": "disk",
                                     **opened(disk, opened(export.image_files["rootfs.qcow2"]))}),
            "-device", "virtio-blk-device,drive=disk", "-global", "virtio-mmio.force-legacy=false"]
    if image.initrd is not None:
        boot += ["-initrd", str(image.initrd)]
    console = subprocess.run(boot, capture_output=True, text=True, timeout=200,
                             stdin=subprocess.DEVNULL)
    assert hashlib.sha256(noise).hexdigest() in console.stdout, console.stdout + console.stderr
