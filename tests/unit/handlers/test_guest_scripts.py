"""What a node runs in a guest to start a service once and to end a listener, run here by real
shells and processes."""
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodeworker.handlers import end_listener, start_service

STILL_LISTENS = 75
DEAF = (
    "import signal, socket, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    "time.sleep(60)"
)


class Starter:
    """Runs the start script for an operation's number, with its files in a directory of ours."""

    def __init__(self, directory: Path) -> None:
        self.log, self.lock = directory / "log", directory / "service.lock"
        self.log.touch()
        self._script = start_service._START.replace(start_service.START_LOG, str(self.log))

    def __call__(self, number: int, line: str = "echo ran") -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["/bin/bash", "-c", self._script, str(self.lock), str(number),
                                 line])


@pytest.fixture
def start(tmp_path: Path) -> Starter:
    return Starter(tmp_path)


def test_an_operation_starts_its_service_once_and_the_next_one_again(start):
    for number in (1, 1, 1, 2, 2):
        assert start(number).wait(10) == 0
    assert start.log.read_text() == "ran\nran\n"
    assert [path.name for path in start.lock.parent.glob("service.lock.*")] == ["service.lock.2"]


def test_a_service_that_lives_is_not_started_beside(start):
    living = start(1, "echo ran; exec sleep 60")
    deadline = time.monotonic() + 10
    while not start.log.read_text():
        assert time.monotonic() < deadline
    assert start(2).wait(10) == 0
    living.kill()
    living.wait()
    assert start(2).wait(10) == 0
    assert start.log.read_text() == "ran\nran\n"


@pytest.fixture
def listener():
    """A process that listens and ignores TERM; gives it and its port."""
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    with process.stdout as said:
        port = int(said.readline())
    yield process, port
    process.kill()
    process.wait()


def end(mark, port, number):
    return subprocess.run([sys.executable, "-c", end_listener._PROGRAM, str(mark), str(port),
                           str(number)], check=False).returncode


def test_who_listens_is_found_and_ended_by_the_signal_that_works(listener, tmp_path):
    process, port = listener
    mark = tmp_path / "mark"
    assert end(mark, port, 15) == STILL_LISTENS and process.poll() is None
    assert end(mark, port, 9) == 0
    assert process.wait(10) == -9
    assert end(mark, port, 9) == 0


def test_once_the_own_service_was_started_nothing_is_ended(listener, tmp_path):
    process, port = listener
    (tmp_path / "mark").touch()
    assert end(tmp_path / "mark", port, 9) == 0 and process.poll() is None
