"""Copy a file that a process writes to through a mapping (a guest's RAM), so that the process has
to stand still for less than the copy takes.

1. `begin` copies all there is while the writer goes on: what it gives may be old and torn. If the
target holds something like the source already, and has it in memory, `begin` writes what it lacks,
and what differs only if there is so much that all of it would keep the writer waiting. 2. With the
writer stopped, `finish` compares every byte that the target should have by now, copies what
differs, and what was a hole before. Nobody is asked what was written to meanwhile, so nothing can
be missed. Where extents can be shared, sharing them once more is all of `finish`.
"""
import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from nodeworker.disks import sparse
from nodeworker.disks.sparse import CheckRoom, Ranges

# What is compared in one call, and what is written again if it differs.
_STEP_BYTES, _GRAIN_BYTES = 256 * 1024, 16 * 1024
# To read a file from the disk takes longer than to write it anew.
_RESIDENT_SHARE = 0.9
# The kernel is asked about one of so many steps: memory is taken away in long runs, and to ask
# about each page of 100 MB takes 2 ms, for which a fork waits.
_ASKED_OF = 4
# So much is compared once, in `finish`, which compares all of it anyway: that takes the fork of an
# idle guest less long. `finish` takes 9 ms for so much if nothing differs, 72 if all of it does
# (medians of seven).
_AT_ONCE_BYTES = 128 * 1024 * 1024
_THREADS = 2
# Some 3 ms for 100 MB in two files, for which nobody has to wait.
_unmapping = ThreadPoolExecutor(max_workers=1, thread_name_prefix="unmapping")
_MADV_RANDOM, _MADV_POPULATE_READ = 1, 22
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class RamCapture:
    """A copy of the file `source` to the file `target`, both open descriptors, which stay open
    until the end of this context manager. The target is empty, or of the source's size and thought
    to be much the same. `check_room` is asked about what it lacks, unless extents are shared."""

    def __init__(self, source: int, target: int, check_room: CheckRoom | None = None) -> None:
        self._source, self._target, self._check_room = source, target, check_room
        self._copied: Ranges = []
        self._shares = False
        self._maps: dict[int, _Mapping] = {}

    def __enter__(self) -> "RamCapture":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        while self._maps:
            _unmapping.submit(self._maps.popitem()[1].close)

    def begin(self) -> None:
        """Copy what is there now; the source may change meanwhile, but not its size. Raises what
        `check_room` raises."""
        self._shares = sparse.share_extents(self._source, self._target)
        if self._shares:
            return
        size = os.fstat(self._source).st_size
        self._copied = list(sparse.data_ranges(self._source))
        held = self._find_held(size)
        if not held:
            os.ftruncate(self._target, 0)
            os.ftruncate(self._target, size)
        absent = list(sparse.without(self._copied, held))
        if self._check_room is not None:
            self._check_room(sparse.total_bytes(absent))
        common = list(sparse.without(self._copied, absent))
        source, target = self._map(self._source), self._map(self._target)
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            works = [pool.submit(source.populate, self._copied)]
            target.populate(common)
            self._empty_holes(held)
            if sparse.total_bytes(common) > _AT_ONCE_BYTES:
                works += self._mend_all(pool, common)
            self._write(absent)
            _wait(works)
        target.populate(absent)

    def _find_held(self, size: int) -> Ranges:
        """Where the target has data that are of use: it has the size of the source, and they are in
        memory."""
        if os.fstat(self._target).st_size != size:
            return []
        held = list(sparse.data_ranges(self._target))
        mapping = _Mapping(self._target)
        try:
            return held if mapping.resident_share(held) >= _RESIDENT_SHARE else []
        finally:
            mapping.close()

    def _empty_holes(self, held: Ranges) -> None:
        """Let the target have zeros where the source has small holes, and holes where it has
        others. The source is not read there, which would give it pages of zeros."""
        joined = list(sparse.without_small_holes(self._copied))
        for start, end in sparse.without(joined, self._copied):
            os.pwrite(self._target, bytes(end - start), start)
        for start, end in sparse.without(held, joined):
            sparse.punch(self._target, start, end - start)

    def _map(self, descriptor: int) -> "_Mapping":
        self._maps[descriptor] = mapping = _Mapping(descriptor)
        return mapping

    def finish(self) -> None:
        """Make the copy equal to the source, after `begin`. Nobody may write to it meanwhile."""
        if self._shares:
            if not sparse.share_extents(self._source, self._target):
                raise OSError("extents that could be shared cannot be shared any more")
            return
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            mending = self._mend_all(pool, self._copied)
            self._write(sparse.without(sparse.data_ranges(self._source), self._copied))
            _wait(mending)

    def _write(self, ranges: Iterable[tuple[int, int]]) -> None:
        for start, end in ranges:
            self._maps[self._source].write(self._target, start, end)

    def _mend_all(self, pool: ThreadPoolExecutor, ranges: Ranges) -> "list[Future[None]]":
        """Write again whatever differs in these ranges."""
        return [pool.submit(self._mend, part) for part in portions(ranges, _THREADS)]

    def _mend(self, ranges: Ranges) -> None:
        source, target = self._maps[self._source], self._maps[self._target]
        for start, end in steps(ranges, _STEP_BYTES):
            if not _differ(source, target, start, end):
                continue
            for low, high in steps([(start, end)], _GRAIN_BYTES):
                if _differ(source, target, low, high):
                    source.write(self._target, low, high)


def _wait(works: "list[Future[None]]") -> None:
    """Until they are done; raises what they raise."""
    for work in works:
        work.result()


class _Mapping:
    """A whole file mapped to be read, without anything being read ahead: in the holes of a file
    with room on the disk that makes pages of zeros, which count as data from then on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._bytes = descriptor, os.fstat(descriptor).st_size
        address = _libc.mmap(None, self._bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"mmap: {os.strerror(number)}")
        self.address: int = address
        _libc.madvise(address, self._bytes, _MADV_RANDOM)

    def close(self) -> None:
        """Once, after which nothing else may be called."""
        _libc.munmap(self.address, self._bytes)

    def populate(self, ranges: Ranges) -> None:
        """Have the pages of these ranges in memory, and in the page table where the kernel can;
        else they come one by one."""
        for start, end in ranges:
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_WILLNEED)
        for start, end in ranges:
            _libc.madvise(self.address + start, end - start, _MADV_POPULATE_READ)

    def resident_share(self, ranges: Ranges) -> float:
        """How much of these ranges, which begin and end with pages, is in memory, by a sample."""
        pages = found = 0
        for start, end in list(steps(ranges, _STEP_BYTES))[::_ASKED_OF]:
            told = (ctypes.c_ubyte * ((end - start) // sparse.PAGE_BYTES))()
            if _libc.mincore(self.address + start, end - start, told) != 0:
                return 0.0
            pages, found = pages + len(told), found + bytes(told).count(1)
        return found / pages if pages else 0.0

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
