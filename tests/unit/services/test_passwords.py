"""A password has 8 to 256 characters; who hashes one waits for a turn, in order, not for ever."""
import threading
import time
from contextlib import ExitStack

import pytest

from services.accounts.passwords import Turns, check_length
from services.errors import InvalidRequest, Unavailable
from tests.stack.waiting import until


@pytest.mark.parametrize("length", [0, 7, 257])
def test_a_password_of_the_wrong_length_is_refused(length):
    with pytest.raises(InvalidRequest, match="8 to 256 characters"):
        check_length("x" * length)


@pytest.mark.parametrize("length", [8, 256])
def test_the_shortest_and_the_longest_password_are_taken(length):
    check_length("x" * length)


def held(turns, count):
    stack = ExitStack()
    for _ in range(count):
        stack.enter_context(turns.turn())
    return stack


def test_no_more_than_so_many_at_once():
    turns, lock = Turns(2, 50, 30), threading.Lock()
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        with turns.turn():
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (2, 0)


def test_they_come_in_the_order_in_which_they_asked():
    turns, came, threads = Turns(1, 50, 30), [], []

    def work(number):
        with turns.turn():
            came.append(number)

    with held(turns, 1):
        for number in range(10):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            until(lambda waiting=number + 1: len(turns._line) == waiting)
    for thread in threads:
        thread.join()
    assert came == list(range(10))


def test_who_has_waited_too_long_is_refused_and_takes_no_turn():
    turns = Turns(2, 50, 0.1)
    with held(turns, 2):
        with pytest.raises(Unavailable) as refused:
            turns._take()
        assert refused.value.retry_after_s == 5
    with held(turns, 2), pytest.raises(Unavailable):
        turns._take()


def test_a_full_line_refuses_at_once():
    turns = Turns(1, 0, 60)
    with held(turns, 1):
        began = time.monotonic()
        with pytest.raises(Unavailable):
            turns._take()
        assert time.monotonic() - began < 5


def test_a_turn_ends_with_an_error_too():
    turns = Turns(1, 0, 60)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns.turn():
            raise ZeroDivisionError
