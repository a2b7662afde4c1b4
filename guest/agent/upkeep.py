"""Work on the guest as a whole: flushing and measuring its disk, waiting for a port, getting its memory ready to bake."""
import os
import socket
import subprocess
import time
from typing import Any

from .offload import Channel, Work
from .requests import MAX_TIMEOUT_MS, integer

PORT_POLL_S = 0.02
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
    2. All caches are dropped. The kernel runs with `init_on_free`, so every page this frees reads as zeros and the host can
       make holes of them.
    3. What the first command of a sandbox needs is brought back.
    """

    def work(channel: Channel) -> dict[str, Any]:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as switch:
            switch.write("3")
        with open("/proc/sys/vm/compact_memory", "w", encoding="ascii") as switch:
            switch.write("1")
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


def _free_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as facts:
        kilobytes = next(line.split()[1] for line in facts if line.startswith("MemFree:"))
    return int(kilobytes) * 1024
