"""What is uploaded of a snapshot is its disk, byte for byte, on the image it stands on, and a
machine that knows nothing of this node boots from it."""
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.driver import VmNotFound
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
    exported = opened(disk, opened(export.image_file))
    told = qemu_img("compare", f"json:{json.dumps(exported)}", f"json:{json.dumps(original)}")
    assert "Images are identical" in told
    assert disk.stat(
    ).st_size < export.image_file.stat().st_size / 4, "only what differs from the image"


def test_an_exported_disk_is_a_snapshot_of_another_node(lab, tmp_path):
    spec = lab.create()
    lab.agent(spec).write_file("/root/noise", b"noise")
    lab.agent(spec).sync(10.0)
    lab.driver.snapshot(spec.sandbox_id, "snaphere")
    export = lab.driver.export_disk("snaphere", tmp_path / "disk")
    fetched = []

    def fetch(path):
        fetched.append(path)
        shutil.copy(tmp_path / "disk", path)

    with pytest.raises(VmNotFound):
        lab.driver.import_disk("snapthere", spec.shape, f"{export.image_key}0", fetch)
    for _ in range(2):
        lab.driver.import_disk("snapthere", spec.shape, export.image_key, fetch)
    assert len(fetched) == 1 and "snapthere" in lab.driver.list_snapshots()
    lab.driver.delete_snapshot("snaphere")
    lab.driver.destroy(spec.sandbox_id)
    copy = lab.spec("snapthere", from_disk=True)
    lab.driver.create(copy)
    assert lab.agent(copy).read_file("/root/noise", 100, 5.0) == b"noise"


def test_an_image_is_compressed_once(real, tmp_path):
    spec = real.create()
    real.driver.snapshot(spec.sandbox_id, "snaponce")
    first = real.driver.export_disk("snaponce", tmp_path / "one").image_file.stat()
    second = real.driver.export_disk("snaponce", tmp_path / "two").image_file.stat()
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
                                     **opened(disk, opened(export.image_file))}),
            "-device", "virtio-blk-device,drive=disk", "-global", "virtio-mmio.force-legacy=false"]
    if image.initrd is not None:
        boot += ["-initrd", str(image.initrd)]
    console = subprocess.run(boot, capture_output=True, text=True, timeout=200,
                             stdin=subprocess.DEVNULL)
    assert hashlib.sha256(noise).hexdigest() in console.stdout, console.stdout + console.stderr
