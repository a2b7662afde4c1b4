"""Sparse copies, reserved files, qcow2 overlays, layers and records: every byte, and what a crash
may leave."""
import errno
import fcntl
import os
import subprocess
import threading

import pytest

from nodeworker.disks import durable, qcow2, reserve_blocks, sparse
from nodeworker.disks.layers import LayerStore, warm_image_reference

MB = 1 << 20
KB = 1 << 10


def sparse_file(path, size, pieces):
    with path.open("w+b") as stream:
        stream.truncate(size)
        for offset, content in pieces.items():
            stream.seek(offset)
            stream.write(content)
        os.fsync(stream.fileno())
    return path


def blocks(path):
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("size", [512, MB, 16 << 30, (16 << 30) + 512, 1 << 42])
def test_an_overlay_written_by_us_is_one_qemu_accepts_writes_and_finds_sound(tmp_path, size):
    path = tmp_path / "overlay"
    qcow2.create_overlay(path, size)
    for command in (["qemu-img",
                     "check"], ["qemu-io", "-c", "write -P 7 0 512", "-c",
                                "read -P 7 0 512"], ["qemu-img", "check"]):
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    facts = subprocess.run(
        ["qemu-img", "info", "--output=json", str(path)], capture_output=True, text=True,
        check=True)
    assert f'"virtual-size": {size}' in facts.stdout and "backing-filename" not in facts.stdout


def test_an_overlay_never_replaces_a_file(tmp_path):
    (tmp_path / "disk").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        qcow2.create_overlay(tmp_path / "disk", MB)
    assert (tmp_path / "disk").read_bytes() == b"precious"


@pytest.mark.parametrize("pieces", [
    {},
    {0: b"start"},
    {64 * MB - 4: b"tail"},
    {0: os.urandom(MB), 10 * MB: os.urandom(3 * MB), 40 * MB + 12345: b"odd"},
], ids=["empty", "start", "end", "several"])
def test_a_copy_is_equal_and_as_sparse_as_its_source(tmp_path, pieces):
    source = sparse_file(tmp_path / "source", 64 * MB, pieces)
    with source.open("rb") as reader, (tmp_path / "copy").open("w+b") as writer:
        sparse.clone(reader.fileno(), writer.fileno())
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert blocks(tmp_path / "copy") <= blocks(source) + 64 * KB


@pytest.mark.parametrize(("ranges", "joined"), [
    ([], []),
    ([(0, 10)], [(0, 10)]),
    ([(0, 10), (12, 20)], [(0, 20)]),
    ([(0, 10), (30, 40)], [(0, 10), (30, 40)]),
    ([(0, 10), (12, 20), (25, 30), (60, 70)], [(0, 30), (60, 70)]),
])
def test_small_holes_are_not_worth_an_extent(ranges, joined):
    assert list(sparse.without_small_holes(ranges, smallest=10)) == joined


def test_longer_runs_of_zero_pages_become_holes_and_nothing_else_changes(tmp_path):
    content = b"a" * 4096 + bytes(MB) + b"b" * 4096 + bytes(8192) + b"c" * 100
    path = sparse_file(tmp_path / "ram", 4 * MB, {0: content})
    with path.open("r+b") as ram:
        freed = sparse.punch_zero_pages(ram.fileno())
    assert freed == MB
    assert path.read_bytes() == content + bytes(4 * MB - len(content))
    assert blocks(path) < MB


def test_reading_a_source_that_shrank_fails_instead_of_looping(tmp_path):
    source = sparse_file(tmp_path / "source", MB, {0: b"x" * MB})
    with source.open("r+b") as reader, (tmp_path / "copy").open("w+b") as writer:
        reader.truncate(0)
        with pytest.raises(OSError) as failure:
            sparse._copy_range(reader.fileno(), writer.fileno(), 0, MB)
    assert failure.value.errno == errno.EIO


@pytest.mark.parametrize("durable_write", [True, False])
def test_a_record_is_replaced_as_a_whole_and_readable_by_its_owner_only(tmp_path, durable_write):
    path = tmp_path / "record"
    durable.write_json(path, {"version": 1}, durable=durable_write)
    durable.write_json(path, {"version": 2}, durable=durable_write)
    assert durable.read_json(path) == {"version": 2}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["record"]


@pytest.mark.parametrize("content", [b"", b'{"half', b"[1]", b"\xff\xfe"])
def test_a_record_that_is_not_whole_counts_as_none(tmp_path, content):
    (tmp_path / "record").write_bytes(content)
    assert durable.read_json(tmp_path / "record") is None
    assert durable.read_json(tmp_path / "missing") is None


def test_a_removed_tree_is_gone_at_once_and_again_is_no_error(tmp_path):
    (tmp_path / "box" / "deep").mkdir(parents=True)
    durable.remove_tree(tmp_path / "box", tmp_path / "trash")
    assert not (tmp_path / "box").exists()
    durable.remove_tree(tmp_path / "box", tmp_path / "trash")


@pytest.fixture
def store(tmp_path):
    return LayerStore(tmp_path / "node", tmp_path / "images")


def layer(store):
    reference = store.new_reference()
    store.create(reference, MB)
    return reference


def lose(path, size):
    """What a power failure leaves of a file that was not flushed."""
    path.write_bytes(b"")
    os.truncate(path, size)


@pytest.mark.parametrize("grown", [0, MB, None], ids=["as it was", "written to", "cut"])
def test_a_layer_of_which_a_power_failure_left_nothing_is_made_anew(store, grown):
    reference = layer(store)
    path = store.path(reference)
    size = path.stat().st_size
    lose(path, 0 if grown is None else size + grown)
    assert store.renew_lost([reference], MB)
    assert store.is_empty(reference, MB) and path.stat().st_mode & 0o777 == 0o600
    qcow2.check_overlay(store.open(reference, writable=True))
    assert not store.renew_lost([reference], MB)
    assert set(store.list_paths()) == {reference}


def test_a_layer_is_not_made_anew_that_holds_anything_or_is_not_one_sandbox_s_own(store, tmp_path):
    whole, frozen = layer(store), layer(store)
    content = store.path(whole).read_bytes()
    lose(store.path(frozen), MB)
    store.freeze(frozen)
    lost = {store.path(frozen): frozen}
    for reference in ("template:small", "template:small.tmp", "image:base"):
        store.path(reference).parent.mkdir(parents=True)
        lose(store.path(reference), MB)
        lost[store.path(reference)] = reference
    assert not store.renew_lost([whole, *lost.values()], MB)
    assert store.path(whole).read_bytes() == content
    assert all(path.read_bytes() == bytes(MB) for path in lost)


def test_a_warm_image_keeps_the_name_that_records_of_sleeping_sandboxes_have(store, tmp_path):
    assert warm_image_reference("small") == "template:small"
    disk = tmp_path / "images" / "templates" / "small" / "disk.qcow2"
    assert store.path("template:small") == disk


def test_layers_that_nothing_refers_to_are_collected_and_all_others_stay(store):
    kept, dropped = layer(store), layer(store)
    assert store.collect(lambda: {kept, "image:some", "template:other"}) == {
        dropped.partition(":")[2]
    }
    assert store.path(kept).exists() and not store.path(dropped).exists()


def test_nothing_is_collected_while_the_references_are_not_known(store):
    reference = layer(store)
    assert store.collect(lambda: None) == set()
    assert store.path(reference).exists()


def test_the_collector_waits_for_a_reference_in_the_making(store):
    recorded, outcome = set(), []
    with store.referring():
        reference = layer(store)
        collector = threading.Thread(
            target=lambda: outcome.append(store.collect(lambda: set(recorded))))
        collector.start()
        collector.join(0.2)
        assert collector.is_alive()
        recorded.add(reference)
    collector.join(10)
    assert outcome == [set()] and store.path(reference).exists()


def test_a_frozen_layer_may_not_be_written(store):
    reference = layer(store)
    store.freeze(reference)
    assert store.path(reference).stat().st_mode & 0o777 == 0o400


def test_an_unknown_kind_of_layer_is_refused(store):
    with pytest.raises(ValueError, match="unknown kind"):
        store.path("something:else")


def test_a_shared_lock_does_not_keep_out_another_reference(store):
    with store.referring():
        with (store.path("layer:x").parent / "lock").open("r+") as other:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


NOISE = os.urandom(MB)


@pytest.fixture
def memory(tmp_path):
    """A sparse file of 64 MiB with a little in it."""
    path = tmp_path / "ram"
    with path.open("wb") as file:
        file.truncate(64 * MB)
        os.pwrite(file.fileno(), NOISE, 8 * MB)
    return path


def content_ranges(path):
    with path.open("rb") as file:
        return list(sparse.data_ranges(file.fileno()))


def test_a_reserved_file_occupies_its_size_and_still_reads_as_holes(memory):
    before = content_ranges(memory)
    reserve_blocks.reserve(memory)
    assert blocks(memory) >= 64 * MB and memory.stat().st_size == 64 * MB
    assert content_ranges(memory) == before == [(8 * MB, 9 * MB)]
    assert memory.read_bytes()[8 * MB:9 * MB] == NOISE


def test_what_nobody_wrote_is_given_back_and_the_rest_is_kept(memory):
    reserve_blocks.reserve(memory)
    with memory.open("r+b") as file:
        os.pwrite(file.fileno(), NOISE, 40 * MB)
    reserve_blocks.release(memory)
    assert 2 * MB <= blocks(memory) < 4 * MB and memory.stat().st_size == 64 * MB
    content = memory.read_bytes()
    assert content[8 * MB:9 * MB] == NOISE == content[40 * MB:41 * MB]
    assert not any(content[:8 * MB]) and not any(content[41 * MB:])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_refuses_a_reservation_before_anybody_relies_on_it(tmp_path):
    image, mounted = tmp_path / "disk.img", tmp_path / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(48 * MB)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        found = reserve_blocks.space_of(mounted)
        assert 0 < found.free_bytes < found.total_bytes < 48 * MB
        path = mounted / "ram"
        with path.open("wb") as file:
            file.truncate(64 * MB)
        with pytest.raises(OSError) as refused:
            reserve_blocks.reserve(path)
        assert refused.value.errno == errno.ENOSPC
        assert reserve_blocks.space_of(mounted).free_bytes > found.free_bytes - MB
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
