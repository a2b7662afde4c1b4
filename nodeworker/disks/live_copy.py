"""Copy a file that a process writes to through a mapping (a guest's RAM), so that the process has
to stand still for less than the copy takes.

1. `begin` copies all there is while the writer goes on: what it gives may be old and torn. 2. With
the writer stopped, `finish` compares every byte that was copied with the source, copies what
differs, and what was a hole before. Nobody is asked what was written to meanwhile, so nothing can
be missed. Where extents can be shared, sharing them once more is all of `finish`.
"""
import ctypes
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from nodeworker.disks import sparse
from nodeworker.disks.sparse import Ranges

# What is compared in one call, and what is written again if it differs.
_STEP_BYTES, _GRAIN_BYTES = 256 * 1024, 16 * 1024
_THREADS = 2
_MADV_POPULATE_READ = 22
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class LiveCopy:
    """A copy of the file `source` to the empty file `target`, both open descriptors, which stay
    open until the end of this context manager."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._copied: Ranges = []
        self._shares = False
        self._maps: tuple["_Mapping", ...] = ()

    def __enter__(self) -> "LiveCopy":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        maps, self._maps = self._maps, ()
        for each in maps:
            each.close()

    def begin(self) -> None:
        """Copy what is there now; the source may change meanwhile, but not its size."""
        self._shares = sparse.share_extents(self._source, self._target)
        if self._shares:
            return
        os.ftruncate(self._target, os.fstat(self._source).st_size)
        self._copied = self._filled()
        with ThreadPoolExecutor(max_workers=1) as pool:
            mapped = pool.submit(self._map, self._source)
            sparse.copy_ranges(self._source, self._target, self._copied)
            mapped.result()
        self._map(self._target)

    def _map(self, descriptor: int) -> None:
        mapping = _Mapping(descriptor)
        self._maps += (mapping, )
        mapping.populate(self._copied)

    def finish(self) -> None:
        """Make the copy equal to the source, after `begin`. Nobody may write to it meanwhile."""
        if self._shares:
            if not sparse.share_extents(self._source, self._target):
                raise OSError("extents that could be shared cannot be shared any more")
            return
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            parts = [pool.submit(self._mend, part) for part in portions(self._copied, _THREADS)]
            sparse.copy_ranges(self._source, self._target,
                               list(sparse.without(self._filled(), self._copied)))
            for part in parts:
                part.result()

    def _filled(self) -> Ranges:
        return list(sparse.without_small_holes(sparse.data_ranges(self._source)))

    def _mend(self, ranges: Ranges) -> None:
        """Write again what differs in these ranges."""
        source, target = self._maps
        for start, end in steps(ranges, _STEP_BYTES):
            if not _differ(source, target, start, end):
                continue
            for low, high in steps([(start, end)], _GRAIN_BYTES):
                if _differ(source, target, low, high):
                    source.write(self._target, low, high)


class _Mapping:
    """A whole file mapped to be read."""

    def __init__(self, descriptor: int) -> None:
        self._bytes = os.fstat(descriptor).st_size
        address = _libc.mmap(None, self._bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"mmap: {os.strerror(number)}")
        self.address: int = address

    def close(self) -> None:
        """Once, after which nothing else may be called."""
        _libc.munmap(self.address, self._bytes)

    def populate(self, ranges: Ranges) -> None:
        """Have the pages of these ranges in the page table, where the kernel can; else they come
        one by one."""
        for start, end in ranges:
            _libc.madvise(self.address + start, end - start, _MADV_POPULATE_READ)

    def write(self, descriptor: int, start: int, end: int) -> None:
        """Write this range into another file, at the same place."""
        while start < end:
            rest = (ctypes.c_char * (end - start)).from_address(self.address + start)
            start += os.pwrite(descriptor, rest, start)


def _differ(one: _Mapping, other: _Mapping, start: int, end: int) -> bool:
    return bool(_libc.memcmp(one.address + start, other.address + start, end - start))


def steps(ranges: Ranges, most_bytes: int) -> Iterator[tuple[int, int]]:
    """The ranges cut into pieces of at most `most_bytes`. Pure."""
    for start, end in ranges:
        for low in range(start, end, most_bytes):
            yield low, min(low + most_bytes, end)


def portions(ranges: Ranges, count: int) -> list[Ranges]:
    """The ranges dealt out to `count` that are to have about the same number of bytes. Pure."""
    pieces = list(steps(ranges, _STEP_BYTES))
    share = -(-len(pieces) // count) or 1
    return [pieces[low:low + share] for low in range(0, len(pieces), share)]
