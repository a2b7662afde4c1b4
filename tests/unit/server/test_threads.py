"""Which thread of a server makes a call, and when: the one that rested last, few at a time."""
import threading
import time

import pytest

from app.http.server import threads as server_threads
from app.http.server.threads import Threads
from tests.stack.waiting import until


@pytest.fixture
def threads():
    made = Threads(2)
    yield made
    made.shutdown()


class Call:
    """Waits to be ended, and tells by which thread it was made."""

    def __init__(self):
        self.thread, self._begun, self._may_end = None, threading.Event(), threading.Event()

    def __call__(self):
        self.thread = threading.current_thread()
        self._begun.set()
        assert self._may_end.wait(30)

    def begun(self):
        assert self._begun.wait(30)
        return self

    def end(self, threads, busy):
        self._may_end.set()
        until(lambda: threads.busy == busy)


def run(threads):
    call = Call()
    threads.run(call)
    return call


def test_the_one_that_rested_last_is_taken(threads):
    first, second = run(threads).begun(), run(threads).begun()
    assert first.thread is not second.thread and threads.busy == 2
    first.end(threads, 1)
    second.end(threads, 0)
    for _ in range(3):
        third = run(threads).begun()
        assert third.thread is second.thread
        third.end(threads, 0)


def test_what_they_have_no_time_for_waits_in_line(threads):
    calls = [run(threads) for _ in range(5)]
    calls[0].begun().end(threads, 2)
    assert calls[2].begun().thread is calls[0].thread
    assert calls[3].thread is None
    for call in calls[1:4]:
        call.begun().end(threads, 2 if call is not calls[3] else 1)
    calls[4].begun().end(threads, 0)
    assert len({call.thread for call in calls}) == 2


def test_few_that_may_be_short_are_made_at_a_time(monkeypatch):
    monkeypatch.setattr(server_threads, "SHORT_S", 0.5)
    threads = Threads(20)
    began = time.monotonic()
    calls = [run(threads) for _ in range(server_threads.SHORT_MOST + 2)]
    for call in calls:
        call.begun()
    assert time.monotonic() - began > 0.5, "all would compute at once"
    assert threads.busy == len(calls)
    first, *others = calls
    first.end(threads, len(others))
    for call in others:
        call.end(threads, threads.busy - 1)
    threads.shutdown()


def test_one_that_ends_makes_room_at_once(monkeypatch):
    monkeypatch.setattr(server_threads, "SHORT_S", 600.0)
    threads = Threads(20)
    calls = [run(threads) for _ in range(server_threads.SHORT_MOST + 1)]
    calls[0].begun().end(threads, server_threads.SHORT_MOST)
    assert calls[-1].begun().thread is calls[0].thread
    for call in calls[1:]:
        call.end(threads, threads.busy - 1)
    threads.shutdown()


def test_those_that_take_long_hold_nobody_up():
    threads = Threads(60)
    calls = [run(threads).begun() for _ in range(50)]
    began = time.monotonic()
    last = run(threads).begun()
    assert time.monotonic() - began < 20 and threads.busy == 51
    for call in (*calls, last):
        call.end(threads, threads.busy - 1)
    threads.shutdown()


def test_thousands_of_calls_are_each_made_once():
    threads, made = Threads(30), []
    callers = [threading.Thread(target=lambda: [threads.run(lambda: made.append(0))
                                                for _ in range(500)]) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    until(lambda: len(made) == 4000 and not threads.busy)
    threads.shutdown()


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_call_that_fails_is_logged_and_ends_no_thread(threads, caplog, error):
    made = []

    def fail():
        made.append(threading.current_thread())
        raise error("of this call")

    threads.run(fail)
    until(lambda: made and not threads.busy)
    assert "of this call" in caplog.text
    call = run(threads).begun()
    assert [call.thread] == made
    call.end(threads, 0)


def test_they_end_when_they_have_nothing_to_do(threads):
    resting, busy = run(threads).begun(), run(threads).begun()
    resting.end(threads, 1)
    waiting = [busy.thread, resting.thread]
    threads.shutdown()
    until(lambda: [thread.is_alive() for thread in waiting] == [True, False])
    busy.end(threads, 0)
    until(lambda: not busy.thread.is_alive())


def test_where_the_host_has_no_thread_left_those_there_are_make_the_call(threads, monkeypatch):
    first = run(threads).begun()

    def fail(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    second = run(threads)
    first.end(threads, 1)
    assert second.begun().thread is first.thread
    second.end(threads, 0)
    monkeypatch.undo()
    none = Threads(2)
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError):
        none.run(second)
    assert none.busy == 0


def test_a_call_that_no_thread_could_be_started_for_goes_to_one_that_has_just_ended(
        threads, monkeypatch):
    first = run(threads).begun()

    def end_and_fail(thread):
        first.end(threads, 1)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", end_and_fail)
    second = run(threads)
    assert second.begun().thread is first.thread
    second.end(threads, 0)
