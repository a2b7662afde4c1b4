"""nginx is killed under load, its master alone or with every worker: what was under way may end,
the next requests work, and nothing of the old one stays."""
import contextlib
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.clients.load import Load
from tests.stack.waiting import until
from tests.tls.clients import client


class Requests(Load):
    """Requests one after another, each on a connection of its own: when each began and whether it
    was answered."""

    def __init__(self, stack):
        super().__init__(*[self._run] * 2)
        self._stack, self.tries = stack, []

    def _run(self):
        while not self.ends.wait(0.02):
            began, answered = time.monotonic(), False
            with contextlib.suppress(httpx.HTTPError), client(self._stack) as http:
                answered = http.get("/health").status_code == 200
            self.tries.append((began, answered))


def family(stack):
    """The master and its children, those that filter its log too."""
    master = stack.supervisor.pid("edge")
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return [master, *map(int, children)]


@pytest.mark.parametrize("whole", [False, True], ids=["master", "whole"])
def test_the_next_request_works(sim_stack, whole):
    with Requests(sim_stack) as load:
        until(lambda: len(load.tries) > 10)
        killed, began = family(sim_stack), time.monotonic()
        for pid in killed if whole else killed[:1]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: sim_stack.supervisor.pid("edge") not in (0, killed[0]))
        after = time.monotonic()
        until(lambda: len([1 for at, answered in load.tries if answered and at > after]) > 20)
        until(lambda: not [pid for pid in killed if Path(f"/proc/{pid}").exists()])
        quiet = len(load.tries)
        until(lambda: len(load.tries) > quiet + 10)
    lost = [at for at, answered in load.tries if not answered]
    back = min(at for at, answered in load.tries if answered and at > max(lost, default=began))
    print(f"{'all' if whole else 'master'} killed: {len(lost)} of {len(load.tries)} requests lost,"
          f" answers again after {back - began:.2f} s")
    assert all(answered for _, answered in load.tries[quiet:])
