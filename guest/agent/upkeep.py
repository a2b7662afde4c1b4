"""Work on the guest as a whole: its disk flushed, measured and grown, waiting for a port, becoming
a warm image."""
import mmap
import os
import socket
import subprocess
import time
from typing import Any

from .channel import Channel, Work
from .identity_files import rewrite_identity_files
from .kernel import Kernel
from .protocol import FAILED, Refused
from .requests import MAX_TIMEOUT_MS, integer

PORT_POLL_S = 0.02
DEVICE_POLL_S = 0.05
DEVICE_WAIT_S = 15.0
MAX_DEVICE_BYTES = 1 << 50
# Boot leaves a few ten MiB of used and freed pages behind, which the allocator hands out first.
ZEROED_BYTES = 128 * 1024 ** 2
MAP_POPULATE = 0x8000  # the constant is missing from Python 3.10's mmap module
_WARM_UP = (
    ["/bin/sh", "-c", "true"],
    [
        "/bin/bash", "-c",
        "ls -la / /home/user | cat; env; id; sleep 0.01; grep -c x /etc/passwd; date; uname -a"
    ],
    ["/usr/bin/python3", "-c", "import json, os, subprocess, sys, socket; print('warm')"],
)


def disk_usage(root: str) -> dict[str, int]:
    """Size of the root file system, in bytes, as `df` counts it."""
    facts = os.statvfs(root or "/")
    return {
        "totalBytes": facts.f_blocks * facts.f_frsize,
        "usedBytes": (facts.f_blocks - facts.f_bfree) * facts.f_frsize,
        "availableBytes": facts.f_bavail * facts.f_frsize,
    }


def growing_disk(request: dict[str, Any], kernel: Kernel, root: str) -> Work:
    """The work of a `grow_disk`: the mounted root file system fills its device, once that has
    `deviceBytes`."""
    device_bytes = integer(request, "deviceBytes", 0, MAX_DEVICE_BYTES, 0)

    def work(channel: Channel) -> dict[str, Any]:
        give_up = time.monotonic() + DEVICE_WAIT_S
        # the host tells the driver, which takes its time to notice
        while kernel.root_device_bytes() < device_bytes:
            if time.monotonic() > give_up:
                raise Refused(FAILED, "the root device has not grown")
            channel.wait_unless_gone(DEVICE_POLL_S)
        kernel.grow_root()
        return dict(disk_usage(root))

    return work


def syncing() -> Work:
    """The work of a `sync`: every file system is flushed to its device."""

    def work(channel: Channel) -> dict[str, Any]:
        os.sync()
        return {}

    return work


def waiting_for_port(request: dict[str, Any]) -> Work:
    """The work of a `wait_port`: true as soon as something in the guest accepts connections on the
    port."""
    port = integer(request, "port", 1, 65535)
    timeout_ms = integer(request, "timeoutMs", 0, MAX_TIMEOUT_MS)

    def work(channel: Channel) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_ms / 1000
        while not (is_open := _accepts(port)) and time.monotonic() < deadline:
            channel.wait_unless_gone(PORT_POLL_S)
        return {"open": is_open}

    return work


def preparing(root: str) -> Work:
    """The work of a `prepare`, done once before a warm image is saved: little RAM in use, and the
    useful part of it warm.

    1. Everything dirty goes to the disk, so that cache pages can be dropped. 2. All caches are
    dropped, and what boot has used and freed is zeroed, so that the host can make holes of it. 3.
    What the first moments of a clone need is brought back.
    """

    def work(channel: Channel) -> dict[str, Any]:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as switch:
            switch.write("3")
        _zero_free_memory()
        _warm_up(root)
        os.sync()
        return {"freeBytes": _free_bytes()}

    return work


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def _zero_free_memory() -> None:
    """Take the pages that boot used and freed, which the kernel zeroes for that, and give them
    back."""
    size = min(_free_bytes() // 2, ZEROED_BYTES)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE).close()


def _warm_up(root: str) -> None:
    """Run what a first command runs, and write what an adoption writes, so that neither waits for
    the disk later."""
    for command in _WARM_UP:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
                       timeout=60)
    rewrite_identity_files(root)


def _free_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as facts:
        kilobytes = next(line.split()[1] for line in facts if line.startswith("MemFree:"))
    return int(kilobytes) * 1024
