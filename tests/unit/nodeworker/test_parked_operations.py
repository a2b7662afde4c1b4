"""Lanes tell the ctl lane through a pipe that they parked something."""
import contextlib
import os
import queue
import threading

import pytest

from nodeworker import parked_operations


class Over(Exception):
    """Ends what goes on for ever."""


@pytest.fixture
def announcer(tmp_path, monkeypatch):
    """Starts the ctl lane's thread with that for a look at the database."""

    pipe = parked_operations.listen(tmp_path)

    def announce():
        with contextlib.suppress(Over):
            parked_operations.announce(None, pipe)

    def start(look):
        monkeypatch.setattr(parked_operations, "announce_due", look)
        thread = threading.Thread(target=announce)
        thread.start()
        return thread

    yield start
    os.close(pipe)


def test_a_lane_that_parks_something_is_heard_and_otherwise_nobody_looks(tmp_path, announcer):
    looks, over = queue.Queue(), threading.Event()

    def look(deps):
        if over.is_set():
            raise Over
        looks.put(deps)
        return 3600.0

    thread = announcer(look)
    looks.get(timeout=10)  # at its start
    for _ in range(3):
        parked_operations.tell_ctl(tmp_path)
        looks.get(timeout=10)
    assert not over.wait(0.5) and looks.empty()
    over.set()
    parked_operations.tell_ctl(tmp_path)
    thread.join(10)
    assert not thread.is_alive()


def test_it_looks_again_at_the_time_that_the_look_gave(announcer):
    pauses = [0.0, 0.0]

    def look(deps):
        if not pauses:
            raise Over
        return pauses.pop()

    thread = announcer(look)
    thread.join(10)
    assert not thread.is_alive()


def test_nobody_waits_for_a_listener_that_is_away_or_slow(tmp_path, announcer):
    parked_operations.tell_ctl(tmp_path / "never was")
    heard, go_on = threading.Event(), threading.Event()

    def look(deps):
        if go_on.is_set():
            raise Over
        heard.set()
        go_on.wait(10)
        return 3600.0

    thread = announcer(look)
    assert heard.wait(10)
    for _ in range(70_000):  # more than a pipe holds
        parked_operations.tell_ctl(tmp_path)
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()
    assert (tmp_path / "lanes" / "parked").stat().st_mode & 0o777 == 0o600
