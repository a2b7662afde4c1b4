"""How much room a directory's file system has, and room in it that a sparse file is sure to get.

A process that writes to a hole of a file it has mapped dies of SIGBUS when the disk is full. So the
memory of a guest is reserved before the guest runs (`reserve`: 3 ms for 1 GiB on ext4, where the
reserved blocks still read as holes and are not copied), and what it never used is given back when
it sleeps (`release`). Where extents are shared by reflink, or the file system cannot reserve, only
the free-space floor protects.
"""
import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from nodeworker.disks import sparse

_libc = ctypes.CDLL(None, use_errno=True)
_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS}
MIB = 1024 * 1024


@dataclass(frozen=True)
class Space:
    """Bytes of a file system: all of it, and what a user other than root may still write."""

    total_bytes: int
    free_bytes: int


def space_of(directory: Path) -> Space:
    """What the file system of `directory` has."""
    found = os.statvfs(directory)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def reserve(path: Path) -> None:
    """Give every hole of the file its blocks, which go on reading as zeros. Raises OSError (ENOSPC)
    if there is no room; then they are holes again. No guest may write meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if _libc.fallocate(descriptor, 0, ctypes.c_longlong(0), ctypes.c_longlong(size)) != 0:
            number = ctypes.get_errno()
            if number not in _CANNOT:
                _release(descriptor)  # it took all there was, and others write to the same disk
                raise OSError(number, f"reserving {size} bytes: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def release(path: Path) -> None:
    """Give back what `reserve` took and nobody has written to. Nobody may write meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _release(descriptor)
    finally:
        os.close(descriptor)


def _release(descriptor: int) -> None:
    position, size = 0, os.fstat(descriptor).st_size
    for start, end in [*sparse.data_ranges(descriptor), (size, size)]:
        if start - position >= sparse.MIN_HOLE_BYTES:
            sparse.punch(descriptor, position, start - position)
        position = end
