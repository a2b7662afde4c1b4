"""What the memory of machines occupies of the disk and is still to have of it; RAM is a file.

A machine whose file is whole needs no more of the disk. Any other has a share of it for sure
(`SVC_RAM_SHARE`): what is unused of that is free for nobody else.
"""
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeworker.disks.reserve_blocks import MIB

_BLOCK_BYTES = 512


@dataclass(frozen=True)
class RamFile:
    """The memory of a machine that has a process, in bytes."""

    owner: str
    size: int
    occupied: int
    share: int

    @property
    def is_whole(self) -> bool:
        """True if it has all the blocks it will ever need."""
        return self.occupied >= self.size


class RamShares:
    """The RAM files below `directories` of the machines that have a process, which are the
    `owners`; `part` is the share of each."""

    def __init__(self, directories: Iterable[Path], owners: Callable[[], Iterable[str]],
                 part: float) -> None:
        self._directories = tuple(directories)
        self._owners = owners
        self._part = min(part, 1.0)

    @property
    def all_is_whole(self) -> bool:
        """True if no machine has less than all of its memory."""
        return self._part >= 1

    def share_bytes(self, mem_mb: int) -> int:
        """The share of a machine of so much memory."""
        return int(mem_mb * MIB * self._part)

    def files(self, besides: str = "") -> Iterator[RamFile]:
        """Those of all owners but `besides`."""
        for owner in self._owners():
            for directory in self._directories:
                if owner != besides:
                    with suppress(FileNotFoundError):
                        found = (directory / owner / "ram").stat()
                        yield RamFile(owner, found.st_size, found.st_blocks * _BLOCK_BYTES,
                                      int(found.st_size * self._part))

    def unused_bytes(self, besides: str = "") -> int:
        """What is still to be had of the shares."""
        if self.all_is_whole:
            return 0
        return sum(max(ram.share - ram.occupied, 0) for ram in self.files(besides)
                   if not ram.is_whole)

    def whole_bytes(self, besides: str = "") -> int:
        """What those have in all that are whole."""
        return sum(ram.size for ram in self.files(besides) if ram.is_whole)
