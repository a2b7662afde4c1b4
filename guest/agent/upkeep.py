"""Work on the guest as a whole: flushing and measuring its disk, waiting for a port, getting its memory ready to bake."""
import mmap
import os
import socket
import subprocess
import time
from typing import Any

from .offload import Channel, Work
from .requests import MAX_TIMEOUT_MS, integer

PORT_POLL_S = 0.02
ZEROED_BYTES = 2 * 1024 ** 3
RESERVE_BYTES = 48 * 1024 ** 2
BLOCK_BYTES = 64 * 1024 ** 2
MAP_POPULATE = 0x8000  # the constant is missing from Python 3.10's mmap module
# What the first command of a user needs; run once, so that a clone finds it in the page cache it inherits.
_WARM_UP = (
    ["/bin/sh", "-c", "true"],
    ["/bin/bash", "-c", "ls -la / /home/user | cat; env; id; sleep 0.01; grep -c x /etc/passwd; mkdir -p /tmp; uname -a"],
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


def syncing() -> Work:
    """The work of a `sync`: every file system is flushed to its device."""

    def work(channel: Channel) -> dict[str, Any]:
        os.sync()
        return {}

    return work


def waiting_for_port(request: dict[str, Any]) -> Work:
    """The work of a `wait_port`: true as soon as something in the guest accepts connections on the port."""
    port = integer(request, "port", 1, 65535)
    timeout_ms = integer(request, "timeoutMs", 0, MAX_TIMEOUT_MS)

    def work(channel: Channel) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_ms / 1000
        while not (is_open := _accepts(port)) and time.monotonic() < deadline:
            time.sleep(PORT_POLL_S)
        return {"open": is_open}

    return work


def preparing() -> Work:
    """The work of a `prepare`, done once before a template is saved: as little RAM in use as possible, the useful part warm.

    1. Everything dirty goes to the disk, so that cache pages can be dropped.
    2. All caches are dropped, and free memory is taken, zeroed and given back, so that the host can make holes of it.
    3. What the first command of a sandbox needs is brought back.
    """

    def work(channel: Channel) -> dict[str, Any]:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as switch:
            switch.write("3")
        _zero_free_memory()
        for command in _WARM_UP:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=60)
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
    """Give every page on the free lists back as zeros; the kernel zeroes what a process gets."""
    left = min(_free_bytes(), ZEROED_BYTES) - RESERVE_BYTES
    blocks = []
    while left > 0:
        # Populated by the kernel in one go; pages that were never used before are touched too, hence the limit.
        blocks.append(mmap.mmap(-1, min(left, BLOCK_BYTES), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE))
        left -= BLOCK_BYTES
    for block in blocks:
        block.close()


def _free_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as facts:
        kilobytes = next(line.split()[1] for line in facts if line.startswith("MemFree:"))
    return int(kilobytes) * 1024
