"""Which lanes work: told by locks that end with their processes, with time to come back."""
import fcntl
import subprocess
import sys
from types import SimpleNamespace

from bin.stack.site import ROOT
from models.states import Lane
from nodeworker import lanes_alive
from nodeworker.lanes_alive import LaneWatch, is_held
from tests.stack.waiting import until

HOLD = """
import os, sys
from pathlib import Path
from models.states import Lane
from nodeworker.lanes_alive import hold
hold(Path(sys.argv[1]), Lane.OPS)
if os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lane_works_from_its_start_to_the_end_of_its_process_whatever_its_children_do(
        tmp_path, monkeypatch):
    clock_s = [0.0]
    monkeypatch.setattr(lanes_alive, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    watch = LaneWatch(tmp_path, 0.3)
    assert watch.list_up() == list(Lane), "each has some time to start"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == "held\n"
        assert is_held(tmp_path, Lane.OPS)
        clock_s[0] += 0.4
        assert watch.list_up() == ["ctl", "ops"]
        worker.kill()
        worker.wait()
        assert not is_held(tmp_path, Lane.OPS)
        assert watch.list_up() == ["ctl", "ops"], "it may come back"
        clock_s[0] += 0.4
        assert watch.list_up() == ["ctl"]
        assert is_held(tmp_path, Lane.OPS) is False


def start(tmp_path):
    worker = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdout.readline() == "held\n"
    return worker


def end(worker):
    worker.kill()
    worker.communicate()


def test_a_second_worker_of_a_lane_holds_it_after_the_first(tmp_path):
    first, second = start(tmp_path), start(tmp_path)
    end(first)
    until(lambda: is_held(tmp_path, Lane.OPS))
    end(second)
    assert not is_held(tmp_path, Lane.OPS)


def test_a_lane_that_starts_while_it_is_looked_at_is_seen_the_next_time(tmp_path, monkeypatch):
    started = []

    def meanwhile(does):
        def look(*arguments):
            answered = does(*arguments)
            if not started:
                started.append(start(tmp_path))
            return answered
        return look

    for name in ("fcntl", "lockf"):
        monkeypatch.setattr(fcntl, name, meanwhile(getattr(fcntl, name)))
    assert not is_held(tmp_path, Lane.OPS)
    assert is_held(tmp_path, Lane.OPS)
    end(started[0])
