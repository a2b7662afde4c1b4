"""Which files of a replica make its database, and how much of the disk that may take."""
from contextlib import ExitStack, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from config.settings import Settings
from nodeworker.deploys import replica_files
from nodeworker.deploys.replica_files import Piece, ReplicaBroken, pieces, plan, promise
from objects.store import StoredObject
from services.errors import Unavailable

PREFIX = "apps/a/v1-1/db/"


def piece(level, first, last, size=10):
    return Piece(f"{level}/{first}-{last}", level, first, last, size)


def chosen(found, last=None):
    return [(one.level, one.first, one.last) for one in plan(found, last)]


def test_the_files_of_a_replica_are_told_by_their_names():
    names = ["0000/0000000000000001-000000000000000a.ltx",
             "0009/0000000000000001-00000000000000ff.ltx", "0000/1-2.ltx", "own",
             "0000/0000000000000001-000000000000000a.ltx.tmp",
             "../0000000000000001-000000000000000a.ltx", "0000/../x"]
    objects = [StoredObject(PREFIX + name, 5, datetime.now(timezone.utc)) for name in names]
    assert [(one.level, one.first, one.last, one.size_bytes) for one in pieces(PREFIX, objects)
            ] == [(0, 1, 10, 5), (9, 1, 255, 5)]
    assert pieces(PREFIX, objects)[0].name == "ltx/0/0000000000000001-000000000000000a.ltx"


@pytest.mark.parametrize(("found", "last", "expected"), [
    ([(0, 1, 1)], None, [(0, 1, 1)]),
    ([(0, 1, 1), (0, 2, 2), (0, 3, 3)], None, [(0, 1, 1), (0, 2, 2), (0, 3, 3)]),
    ([(0, 1, 1), (0, 2, 2), (0, 3, 3)], 2, [(0, 1, 1), (0, 2, 2)]),
    ([(9, 1, 5), (0, 4, 4), (0, 5, 5), (0, 6, 6)], None, [(9, 1, 5), (0, 6, 6)]),
    ([(9, 1, 5), (1, 2, 8), (0, 8, 8), (0, 9, 9)], None, [(9, 1, 5), (1, 2, 8), (0, 9, 9)]),
    ([(9, 1, 5), (1, 2, 8), (0, 1, 1), (0, 2, 2), (0, 3, 3)], 3,
     [(0, 1, 1), (0, 2, 2), (0, 3, 3)]),
    ([(9, 1, 9), (0, 1, 9)], None, [(9, 1, 9)]),
    ([(0, 1, 1), (0, 3, 3)], None, [(0, 1, 1)]),
])
def test_the_fewest_files_that_reach_far_enough(found, last, expected):
    assert chosen([piece(*one) for one in found], last) == expected


def test_no_file_is_looked_at_again_for_each_that_is_used():
    looks = []

    class Counted(Piece):
        def __getattribute__(self, name):
            looks.append(name)
            return super().__getattribute__(name)

    def count(pieces):
        looks.clear()
        found = [Counted(str(number), 0, number, number, 10) for number in range(1, pieces + 1)]
        assert len(plan(reversed(found), None)) == pieces
        return len(looks)

    assert count(2000) < 2.5 * count(1000)


def test_a_database_in_very_many_files_is_none():
    found = [piece(0, number, number) for number in range(1, 20_002)]
    assert len(plan(found, 20_000)) == 20_000
    with pytest.raises(ReplicaBroken, match="more than 20000 files"):
        plan(found, None)


@pytest.mark.parametrize(("found", "last"), [
    ([], None), ([(0, 2, 2)], None), ([(0, 1, 1), (0, 3, 3)], 3), ([(0, 1, 1)], 2),
    ([(0, 5, 1)], None), ([(9, 1, 5)], 3)])
def test_files_that_do_not_reach_are_no_database(found, last):
    with pytest.raises(ReplicaBroken):
        plan([piece(*one) for one in found], last)


GIB, SETTINGS = 1024 ** 3, Settings(disk_floor_mb=4096)


@pytest.fixture
def disk(monkeypatch):
    """A disk of which 12 GiB are free, 8 of them above its floor."""
    found = SimpleNamespace(free=12 * GIB)
    monkeypatch.setattr(replica_files.shutil, "disk_usage", lambda path: found)
    return found


def making(number, size_bytes):
    return promise(SETTINGS, Path(f"/of/{number}"), size_bytes)


def test_databases_that_are_made_at_once_leave_the_floor_of_the_disk(disk):
    with ExitStack() as stack:
        files = [int(1.9 * GIB) // 4 ** number for number in range(5)]
        taken = [size + stack.enter_context(making(number, size))
                 for number, size in enumerate(files)]
        assert taken[0] > 5 * GIB and sum(taken) < 8 * GIB
    with making(0, files[0]) as most:
        assert most + files[0] == taken[0], "they give back what they were promised"


def test_small_ones_leave_the_others_their_room(disk):
    with ExitStack() as stack:
        most = [stack.enter_context(making(number, 10_000)) for number in range(7)]
        assert min(most) == max(most) > 2_000_000
        assert stack.enter_context(making(7, GIB)) > 4 * GIB


def test_what_the_disk_has_no_room_for_is_tried_again(disk):
    for size_bytes in (3 * GIB, GIB):
        with pytest.raises(Unavailable), making(0, size_bytes):
            raise ReplicaBroken("file too large")
    with making(0, GIB), pytest.raises(Unavailable), making(1, GIB):
        pass
    with pytest.raises(ReplicaBroken), making(0, 10_000):
        raise ReplicaBroken("not for want of room")
    with pytest.raises(ReplicaBroken), making(0, 65 * GIB):
        pass


@pytest.mark.parametrize(("size_bytes", "is_room"), [(GIB, True), (3 * GIB, False)])
def test_the_room_for_the_files_is_looked_for_before(disk, monkeypatch, size_bytes, is_room):
    name = f"{PREFIX}0000/0000000000000001-0000000000000001.ltx"
    stored = [StoredObject(name, size_bytes, datetime.now(timezone.utc))]
    monkeypatch.setattr(replica_files, "ObjectStore", lambda settings: SimpleNamespace(
        list_objects=lambda prefix: stored))
    with nullcontext() if is_room else pytest.raises(Unavailable):
        replica_files.check_room(SETTINGS, PREFIX)


def test_at_the_floor_none_is_made(disk):
    disk.free = 4 * GIB
    with pytest.raises(Unavailable), making(0, 1):
        pass
