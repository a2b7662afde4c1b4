"""Lines of the access log, which are written together."""
import io
import logging
import threading

import pytest

from config.gunicorn import held_lines
from config.gunicorn.held_lines import HELD_MOST, PIECE_BYTES, HeldLines


class Pipe(io.StringIO):
    """Notes what comes at once."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.some = threading.Event()

    def write(self, text):
        self.written.append(text)
        self.some.set()
        return len(text)

    def lines(self):
        return "".join(self.written).splitlines()


@pytest.fixture
def handler():
    handler = HeldLines()
    handler.stream = Pipe()
    yield handler
    handler.close()


def say(handler, *texts):
    for text in texts:
        handler.handle(logging.makeLogRecord({"msg": text}))


def test_what_comes_within_a_moment_is_written_at_once_and_in_order(handler, monkeypatch):
    monkeypatch.setattr(held_lines, "HELD_S", 0.5)
    say(handler, *(f"line {number}" for number in range(20)))
    assert handler.stream.written == []
    assert handler.stream.some.wait(10)
    assert handler.stream.written == ["".join(f"line {number}\n" for number in range(20))]
    handler.stream.some.clear()
    say(handler, "later")
    assert handler.stream.some.wait(10) and handler.stream.lines()[-1] == "later"


def test_no_piece_is_larger_than_what_a_pipe_takes_as_a_whole(handler):
    texts = [f"{number} " + "ä" * 500 for number in range(30)]
    say(handler, *texts)
    handler.flush()
    assert handler.stream.lines() == texts
    sizes = [len(piece.encode()) for piece in handler.stream.written]
    assert max(sizes) <= PIECE_BYTES < sum(sizes[:2])
    say(handler, "x" * 2 * PIECE_BYTES, "after")
    handler.flush()
    assert handler.stream.written[-2:] == ["x" * 2 * PIECE_BYTES + "\n", "after\n"]


def test_many_are_not_held_any_longer(handler, monkeypatch):
    monkeypatch.setattr(held_lines, "HELD_S", 600)
    say(handler, *["line"] * (HELD_MOST - 1))
    assert handler.stream.written == []
    say(handler, "line")
    assert len(handler.stream.lines()) == HELD_MOST


def test_a_process_that_ends_writes_what_it_holds(handler):
    say(handler, "the last")
    logging.shutdown([lambda: handler])
    assert handler.stream.lines() == ["the last"]


def test_without_a_thread_each_line_is_written_at_once_until_there_is_one(handler, monkeypatch):
    monkeypatch.setattr(held_lines, "HELD_S", 0.01)
    with monkeypatch.context() as none_left:
        def refuse(_):
            raise RuntimeError("can't start new thread")
        none_left.setattr(threading.Thread, "start", refuse)
        for text in ("first", "second"):
            say(handler, text)
            assert handler.stream.lines()[-1] == text
    handler.stream.some.clear()
    say(handler, "third")
    assert handler.stream.some.wait(10) and handler.stream.lines() == ["first", "second", "third"]


def test_a_reader_that_is_gone_ends_nothing(handler, monkeypatch):
    monkeypatch.setattr(held_lines, "HELD_S", 0.01)
    tried = threading.Event()

    def fail(text):
        tried.set()
        raise BrokenPipeError

    with monkeypatch.context() as away:
        away.setattr(handler.stream, "write", fail)
        say(handler, "lost")
        assert tried.wait(10)
        say(handler, *["lost, too"] * HELD_MOST)  # written by who says the last of them
    say(handler, "heard")
    assert handler.stream.some.wait(10) and handler.stream.lines()[-1] == "heard"
