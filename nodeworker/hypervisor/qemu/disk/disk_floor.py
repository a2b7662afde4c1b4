"""Decides whether a disk of a node has room for more: nothing new is written where less than
SVC_DISK_FLOOR_MB would stay free. What machines are still to have of the disk for their memory is
not free."""
import os
from dataclasses import replace
from pathlib import Path

from config.settings import Settings
from nodeworker.disks.reserve_blocks import MIB, Space, space_of
from nodeworker.hypervisor.driver import NoDiskSpace
from nodeworker.hypervisor.qemu.disk.ram_shares import RamShares


class DiskFloor:
    """The floor of the file system of `directory`; `bytes` of it are to stay free. The memory of
    machines is on that of the node directory."""

    def __init__(self, directory: Path, settings: Settings, ram_shares: RamShares) -> None:
        self._directory, self._ram_shares = directory, ram_shares
        self._has_ram = os.stat(directory).st_dev == os.stat(settings.node_dir).st_dev
        self.bytes = settings.disk_floor_mb * MIB

    def space(self) -> Space:
        """Size and free bytes of this file system."""
        found = space_of(self._directory)
        unused = self._ram_shares.unused_bytes() if self._has_ram else 0
        return replace(found, free_bytes=max(found.free_bytes - unused, 0))

    def check(self, needed_bytes: int = 0) -> None:
        """Raises NoDiskSpace unless the floor is left when `needed_bytes` are taken."""
        free = self.space().free_bytes
        if free - needed_bytes < self.bytes:
            raise NoDiskSpace(f"{free // MIB} MB are free; {needed_bytes // MIB} MB are needed and"
                              f" {self.bytes // MIB} MB stay free")

    def is_left(self) -> bool:
        """True while so much is free."""
        return self.space().free_bytes >= self.bytes
