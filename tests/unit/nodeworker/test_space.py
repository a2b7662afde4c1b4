"""Room that a sparse file is sure to get, and a disk that has none."""
import errno
import os
import subprocess

import pytest

from nodeworker.disks import space, sparse
from nodeworker.disks.space import MIB

NOISE = os.urandom(MIB)


@pytest.fixture
def memory(tmp_path):
    """A sparse file of 64 MiB with a little in it."""
    path = tmp_path / "ram"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
        os.pwrite(file.fileno(), NOISE, 8 * MIB)
    return path


def occupied(path):
    return path.stat().st_blocks * 512


def content_ranges(path):
    with path.open("rb") as file:
        return list(sparse.data_ranges(file.fileno()))


def test_a_reserved_file_occupies_its_size_and_still_reads_as_holes(memory):
    before = content_ranges(memory)
    space.reserve(memory)
    assert occupied(memory) >= 64 * MIB and memory.stat().st_size == 64 * MIB
    assert content_ranges(memory) == before == [(8 * MIB, 9 * MIB)]
    assert memory.read_bytes()[8 * MIB:9 * MIB] == NOISE


def test_what_nobody_wrote_is_given_back_and_the_rest_is_kept(memory):
    space.reserve(memory)
    with memory.open("r+b") as file:
        os.pwrite(file.fileno(), NOISE, 40 * MIB)
    space.release(memory)
    assert 2 * MIB <= occupied(memory) < 4 * MIB and memory.stat().st_size == 64 * MIB
    content = memory.read_bytes()
    assert content[8 * MIB:9 * MIB] == NOISE == content[40 * MIB:41 * MIB]
    assert not any(content[:8 * MIB]) and not any(content[41 * MIB:])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_refuses_a_reservation_before_anybody_relies_on_it(tmp_path):
    image, mounted = tmp_path / "disk.img", tmp_path / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(48 * MIB)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        found = space.space_of(mounted)
        assert 0 < found.free_bytes < found.total_bytes < 48 * MIB
        path = mounted / "ram"
        with path.open("wb") as file:
            file.truncate(64 * MIB)
        with pytest.raises(OSError) as refused:
            space.reserve(path)
        assert refused.value.errno == errno.ENOSPC
        space.release(path)
        assert space.space_of(mounted).free_bytes > found.free_bytes - MIB
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
