"""Whose connection goes when there is no room."""
import itertools
from collections import Counter

import pytest

from app.guest_gateway.connection_shares import ConnectionShares


class Room:
    def __init__(self, capacity=6, of_one=4):
        self.shares, self.numbers = ConnectionShares(capacity, of_one), itertools.count()
        self.open = []

    def connect(self, source):
        """What is ended for a connection of this guest."""
        made = (source, next(self.numbers))
        self.open.append(made)
        ended = self.shares.take(source, made)
        if ended is not None:
            self.close(ended)
        return ended

    def close(self, made):
        self.open.remove(made)
        self.shares.give_back(made)

    @property
    def counted(self):
        return Counter(source for source, _ in self.open)


@pytest.fixture
def room():
    return Room()


def test_a_guest_has_its_share_and_no_more(room):
    assert [room.connect("one") for _ in range(4)] == [None] * 4
    assert room.connect("one") == ("one", 4)
    room.close(room.open[0])
    assert room.connect("one") is None


def test_who_has_less_takes_the_newest_of_who_has_most(room):
    for source in "aaaabb":
        assert room.connect(source) is None
    assert room.connect("new") == ("a", 3)
    assert room.connect("new") == ("a", 2)
    assert room.connect("new") == ("new", 8), "everybody has two"
    assert room.counted == {"a": 2, "b": 2, "new": 2}


def test_guests_that_fill_it_together_keep_nobody_out():
    room = Room(capacity=20, of_one=4)
    for source in "abcde" * 10:
        room.connect(source)
    for number in range(15):
        assert room.connect(f"new{number}")[0] in "abcde"
        room.connect("a")
    assert set(room.counted.values()) == {1} and len(room.counted) == 20


def test_what_is_closed_is_counted_no_more(room):
    for _ in range(3):
        for source in "aaabbb":
            assert room.connect(source) is None
        for made in list(room.open):
            room.close(made)
            room.shares.give_back(made)
    assert not room.counted
