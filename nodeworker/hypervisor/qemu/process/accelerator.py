"""Decide whether hardware virtualisation really works here, by booting a guest kernel under it
once.

A present /dev/kvm proves nothing: it may open, create a VM, and still not run a stock kernel. So
`auto` 1. asks the cached verdict, which holds for one boot of the host, one QEMU and one image; 2.
else boots the image's kernel without a root disk under KVM: it must get as far as missing its root
in time; 3. and caches what came of it.
"""
import os
import re
import select
import subprocess
import time
from pathlib import Path

from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.images.guest_image import Image
from nodeworker.hypervisor.qemu.process.argv import machine_option
from nodeworker.hypervisor.qemu.rundir import boot_id

KVM, TCG = "kvm", "tcg"
# Measured: 7.2 and 8.2 translate a program again that starts at other addresses, 10.0 and 10.2 do
# not (docs/decisions/0041).
_FIRST_TO_KEEP_TRANSLATIONS = 10
_PROBE_LIMIT_S = 10.0
_KERNEL_CAME_UP = b"Unable to mount root fs"
_DEVICE = Path("/dev/kvm")


def keeps_translations(version: str) -> bool:
    """True if emulation by this QEMU (the first line of its `--version`) translates a program once
    for all addresses that it starts at."""
    number = re.search(r"version (\d+)", version)
    return number is not None and int(number[1]) >= _FIRST_TO_KEEP_TRANSLATIONS


def choose_accelerator(setting: str, image: Image, version: str, image_dir: Path) -> str:
    """`kvm` or `tcg`; `setting` other than `auto` is taken as it is."""
    if setting != "auto":
        return setting
    if not _DEVICE.exists():
        return TCG
    cache = image_dir / "accelerator.json"
    basis = {"boot_id": boot_id(), "version": version, "image": image.key}
    with locks.hold(image_dir / "accelerator.lock"):
        known = read_json(cache) or {}
        if {key: known.get(key) for key in basis} != basis:
            known = {**basis, "verdict": KVM if boots_under_kvm(image) else TCG}
            write_json(cache, known)
    return str(known["verdict"])


def boots_under_kvm(image: Image, binary: str = "qemu-system-x86_64",
                    limit_s: float = _PROBE_LIMIT_S) -> bool:
    """True if the image's kernel, started under KVM, reaches the end of its own start-up within
    `limit_s`."""
    machine = machine_option(image.machine).replace(",memory-backend=ram", "")
    probe = subprocess.Popen([
        binary, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine",
        machine, "-accel", "kvm", "-cpu", image.cpu, "-m", "256", "-serial", "stdio", "-kernel",
        str(image.kernel), "-append", "console=ttyS0 panic=-1"
    ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert probe.stdout is not None
    seen, deadline = b"", time.monotonic() + limit_s
    try:
        while (remaining := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([probe.stdout], [], [], remaining)
            chunk = os.read(probe.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                return False
            seen = seen[-len(_KERNEL_CAME_UP):] + chunk
            if _KERNEL_CAME_UP in seen:
                return True
        return False
    finally:
        probe.kill()
        probe.wait()
        probe.stdout.close()


def device_groups(accelerator: str, gid: int) -> tuple[int, ...]:
    """Groups QEMU needs to open /dev/kvm; gives the device to group `gid` if only root may open
    it."""
    if accelerator != KVM:
        return ()
    status = _DEVICE.stat()
    if status.st_gid == 0 or status.st_mode & 0o060 != 0o060:
        os.chown(_DEVICE, -1, gid)
        os.chmod(_DEVICE, 0o660)
        return (gid,)
    return (status.st_gid,)
