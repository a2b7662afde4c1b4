"""A copy of a file that is written to all the time is, once the writer stands still, that file."""
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from nodeworker.disks import ram_capture, sparse
from nodeworker.disks.ram_capture import RamCapture
from tests.stack.waiting import until

KB, MB, PAGE = 1 << 10, 1 << 20, 4096
SIZE = 64 * MB
# Writes single bytes, runs over page borders and whole pages, into data and into holes, as a guest
# does: through a mapping. What it has written last is in no order that a copy could follow.
WRITER = """
import mmap, os, random, sys
path, seed = sys.argv[1], int(sys.argv[2])
dice = random.Random(seed)
with open(path, "r+b") as ram:
    view = mmap.mmap(ram.fileno(), 0)
noise = os.urandom(1 << 20)
places = [dice.randrange(len(view) - 40000) for _ in range(400)]
print("writing", flush=True)
while True:
    for _ in range(200):
        place, length = dice.choice(places), dice.choice((1, 7, 4096, 9000, 40000))
        start = dice.randrange(len(noise) - length)
        view[place:place + length] = noise[start:start + length]
    if dice.random() < 0.2:
        places[dice.randrange(len(places))] = dice.randrange(len(view) - 40000)
"""


@pytest.fixture
def ram(tmp_path):
    """A sparse file with data in places, as the memory of a guest is."""
    path = tmp_path / "ram"
    with path.open("w+b") as stream:
        stream.truncate(SIZE)
        for place in (0, 3 * MB, 17 * MB + 12 * KB, 60 * MB):
            stream.seek(place)
            stream.write(os.urandom(2 * MB))
    return path


@pytest.fixture(params=["onto nothing", "onto a little", "onto much"])
def copying(ram, tmp_path, request, monkeypatch):
    """The copy of `ram` to `copy` in the same directory, which is empty, or holds an earlier state:
    in places other data, in one data where there is a hole now, in one a hole. Of that there is so
    little that it is compared at once, or so much that it is not."""
    copy = tmp_path / "copy"
    copy.touch()
    if request.param == "onto much":
        monkeypatch.setattr(ram_capture, "_AT_ONCE_BYTES", MB)
    if request.param != "onto nothing":
        content = ram.read_bytes()
        resident(copy, content)
        put(copy, 17 * MB + 12 * KB, os.urandom(20 * KB))
        put(copy, 61 * MB, bytes([content[61 * MB] ^ 1]))
        put(copy, 40 * MB, os.urandom(MB))
        punch(copy, 3 * MB, MB)
    with ExitStack() as stack:
        reader = stack.enter_context(ram.open("rb"))
        writer = stack.enter_context(copy.open("r+b"))
        yield stack.enter_context(RamCapture(reader.fileno(), writer.fileno()))


def resident(path, content):
    """Make it a file with this content and holes, all of it in memory."""
    with path.open("w+b") as stream:
        stream.write(content)
        sparse.punch_zero_pages(stream.fileno())


def punch(path, start, length):
    with path.open("r+b") as stream:
        sparse.punch(stream.fileno(), start, length)


def put(path, place, content):
    """Write through a mapping, as the guest does."""
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as view:
        view[place:place + len(content)] = content


@pytest.fixture
def written(monkeypatch):
    """How many bytes each write to the copy had."""
    sizes, write = [], ram_capture._Mapping.write

    def counting(mapping, descriptor, start, end):
        sizes.append(end - start)
        write(mapping, descriptor, start, end)

    monkeypatch.setattr(ram_capture._Mapping, "write", counting)
    return sizes


@pytest.fixture(params=range(4))
def writer(ram, request):
    """A process that writes to `ram` all the time."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(ram), str(request.param)],
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        yield process
        process.kill()


def stand_still(process):
    process.send_signal(signal.SIGSTOP)
    while " T " not in Path(f"/proc/{process.pid}/stat").read_text():
        time.sleep(0.001)


def test_what_is_written_all_the_time_is_copied_to_the_last_byte(ram, copying, writer, tmp_path):
    copying.begin()
    until(lambda: (tmp_path / "copy").read_bytes() != ram.read_bytes())
    stand_still(writer)
    copying.finish()
    assert (tmp_path / "copy").read_bytes() == ram.read_bytes()


def test_one_byte_anywhere_is_noticed(ram, copying, tmp_path):
    copying.begin()
    dice = random.Random(7)
    for place in [0, PAGE - 1, PAGE, MB - 1, 2 * MB - 1, 2 * MB, 30 * MB + 5, SIZE - 1,
                  *(dice.randrange(SIZE) for _ in range(200))]:
        put(ram, place, bytes([ram.read_bytes()[place] ^ 1]) if place % 7 == 0 else b"x")
    copying.finish()
    assert (tmp_path / "copy").read_bytes() == ram.read_bytes()


def test_what_became_a_hole_or_zero_is_so_in_the_copy(ram, copying, tmp_path):
    copying.begin()
    punch(ram, 3 * MB, MB)
    put(ram, 60 * MB, bytes(MB))
    copying.finish()
    assert (tmp_path / "copy").read_bytes() == ram.read_bytes()


def test_it_stays_as_sparse_as_its_source(ram, copying, tmp_path):
    copying.begin()
    put(ram, 30 * MB, b"x" * PAGE)
    copying.finish()
    os.sync()
    blocks = (tmp_path / "copy").stat().st_blocks * 512
    assert blocks <= ram.stat().st_blocks * 512 + 4 * sparse.MIN_HOLE_BYTES


def test_of_what_did_not_change_nothing_is_written_twice(ram, copying, written, request):
    copying.begin()
    before = len(written)
    copying.finish()
    kept_for_later = [16 * KB] * 3 if "a little" in request.node.name else []
    assert written[before:] == kept_for_later


def test_what_is_on_the_disk_is_not_read_page_by_page(ram, copying, tmp_path):
    with ram.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    copying.begin()
    read = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    assert read < 8 * MB // PAGE // 10, f"{read} pages were read one by one"
    copying.finish()
    assert (tmp_path / "copy").read_bytes() == ram.read_bytes()


def test_where_extents_can_be_shared_they_are_shared_once_more(ram, copying, tmp_path, monkeypatch):
    shared = []

    def share(source, target):
        shared.append((source, target))
        os.ftruncate(target, 0)
        os.ftruncate(target, SIZE)
        sparse.copy_ranges(source, target, sparse.data_ranges(source))
        return True

    monkeypatch.setattr(ram_capture.sparse, "share_extents", share)
    copying.begin()
    put(ram, 5, b"later")
    copying.finish()
    assert len(shared) == 2
    assert (tmp_path / "copy").read_bytes() == ram.read_bytes()


@pytest.mark.parametrize("held", ["in memory", "on the disk", "of another size"])
def test_what_is_held_is_used_where_that_is_quicker(ram, tmp_path, written, held):
    copy = tmp_path / "copy"
    resident(copy, ram.read_bytes())
    put(copy, 5, b"another")
    with ram.open("rb") as reader, copy.open("r+b") as writer:
        if held == "on the disk":
            os.fsync(writer.fileno())
            os.posix_fadvise(writer.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        elif held == "of another size":
            writer.truncate(SIZE // 2)
        with RamCapture(reader.fileno(), writer.fileno()) as copying:
            copying.begin()
            copying.finish()
    assert copy.read_bytes() == ram.read_bytes()
    assert sum(written) == (ram_capture._GRAIN_BYTES if held == "in memory" else 8 * MB)


@pytest.mark.parametrize(("held_mb", "lacking_mb"), [(0, 8), (1, 7)])
def test_it_asks_for_room_for_what_it_lacks_before_it_writes(ram, tmp_path, written, held_mb,
                                                             lacking_mb):
    copy = tmp_path / "copy"
    resident(copy, ram.read_bytes())
    punch(copy, held_mb * MB, SIZE - held_mb * MB)

    def refuse(needed_bytes):
        raise ZeroDivisionError(needed_bytes)

    with ram.open("rb") as reader, copy.open("r+b") as writer:
        with RamCapture(reader.fileno(), writer.fileno(), refuse) as copying:
            with pytest.raises(ZeroDivisionError, match=f"^{lacking_mb * MB}$"):
                copying.begin()
    assert not written


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_stays_mapped(ram, tmp_path, broken):
    copy = tmp_path / "copy"
    with ram.open("rb") as reader, copy.open("w+b") as writer:
        with pytest.raises(ZeroDivisionError) if broken else nullcontext():
            with RamCapture(reader.fileno(), writer.fileno()) as copying:
                copying.begin()
                assert str(ram) in Path("/proc/self/maps").read_text()
                1 / (0 if broken else 1)
                copying.finish()
    until(lambda: str(tmp_path) not in Path("/proc/self/maps").read_text(), 5)


def test_its_source_has_no_more_pages_than_before(tmp_path):
    """With room on the disk, as the memory of a sandbox has, pages that are only read count as
    data; those that the kernel reads ahead of its guest are marked to have it read more."""
    path = tmp_path / "ram"
    with path.open("w+b") as stream, (tmp_path / "copy").open("w+b") as writer:
        ram = stream.fileno()
        os.posix_fallocate(ram, 0, SIZE)
        for place in range(0, SIZE - 4 * MB, MB):
            os.pwrite(ram, os.urandom(300 * KB), place)
        os.fsync(ram)
        os.posix_fadvise(ram, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(ram, 0) as view:
            assert view[7 * MB] is not None and view[28 * MB] is not None
        before = list(sparse.data_ranges(ram))
        with RamCapture(ram, writer.fileno()) as copying:
            copying.begin()
            copying.finish()
        assert list(sparse.data_ranges(ram)) == before
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("ranges", "others", "rest"), [
    ([], [], []),
    ([(0, 10)], [], [(0, 10)]),
    ([(0, 10)], [(0, 10)], []),
    ([(0, 10)], [(3, 5)], [(0, 3), (5, 10)]),
    ([(0, 10)], [(0, 2), (4, 6), (9, 20)], [(2, 4), (6, 9)]),
    ([(0, 10), (20, 30)], [(5, 25)], [(0, 5), (25, 30)]),
    ([(0, 10), (20, 30), (40, 50)], [(0, 100)], []),
    ([(10, 20), (30, 40)], [(0, 5), (22, 25), (45, 50)], [(10, 20), (30, 40)]),
])
def test_what_of_some_ranges_is_in_no_others(ranges, others, rest):
    assert list(sparse.without(ranges, others)) == rest


@pytest.mark.parametrize("ranges", [[], [(0, PAGE)], [(0, 100 * MB)],
                                    [(n * MB, n * MB + 300 * KB) for n in range(50)]])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_portions_are_all_of_the_ranges_and_about_equal(ranges, count):
    dealt = ram_capture.portions(ranges, count)
    assert [piece for part in dealt for piece in part] == list(
        ram_capture.steps(ranges, ram_capture._STEP_BYTES))
    sizes = [sum(end - start for start, end in part) for part in dealt]
    assert len(dealt) <= count and (not sizes or max(sizes) <= sum(sizes) / count + MB)
