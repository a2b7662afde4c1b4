"""Which files of a replica make its database."""
from datetime import datetime, timezone

import pytest

from nodeworker.deploys.replica_files import Piece, ReplicaBroken, pieces, plan
from objects.store import StoredObject

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
