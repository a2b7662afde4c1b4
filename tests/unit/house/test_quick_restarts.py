"""The plug-in of supervisord: its wait ends when a child ends, and the one after it is left out."""
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
from supervisor.poller import Poller

from bin.stack.quick_restarts import install

LONG_S = 20


@pytest.fixture
def poller():
    """As supervisord has it, with the signal that it takes."""
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    made = Poller(None)
    install(SimpleNamespace(options=SimpleNamespace(poller=made)))
    yield made
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, before)


def test_a_child_that_ends_ends_the_wait_and_spares_the_next_one(poller):
    with subprocess.Popen(["sleep", "0.3"]):
        began = time.monotonic()
        assert poller.poll(LONG_S) == ([], []) == poller.poll(LONG_S)
        assert time.monotonic() - began < LONG_S / 2


def test_without_a_signal_it_waits_as_before(poller):
    began = time.monotonic()
    assert poller.poll(0.2) == ([], [])
    assert time.monotonic() - began >= 0.2
