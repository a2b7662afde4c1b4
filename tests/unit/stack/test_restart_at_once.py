"""The plug-in of supervisord: its wait ends when a child ends, and the one after it is left out.
And what is to stay down after a crash although what ended is started again at once."""
import contextlib
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from supervisor.poller import Poller

from bin.stack.site import Site
from bin.stack.supervision.restart_at_once import install
from bin.stack.supervision.supervise import Supervisor
from tests.stack.waiting import until

LONG_S = 20
# A request to stop that is lost takes supervisord 25 s (`early_signals.py`).
AT_ONCE_S = 10


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


@pytest.fixture
def sleepers(tmp_path):
    """A supervisord whose programs count as started. Nothing of it is a stack's, which would have a
    share of the host."""
    tmp_path.chmod(0o755)
    names = [f"sleeper-{number}" for number in range(30)]
    made = Supervisor(Site.existing(tmp_path), dict.fromkeys(names, "exec sleep 1000"))
    made.launch()
    try:
        made.start(*names)
        until(lambda: {made.state(name) for name in names} == {"RUNNING"}, 30)
        yield made
    finally:
        made.shutdown()


@pytest.mark.slow
def test_what_crashes_stays_down(sleepers):
    """One after the other, so that many are started again just when they are to stop."""
    for name in sleepers.programs:
        pid, began = sleepers.pid(name), time.monotonic()
        sleepers.crash(name)
        assert time.monotonic() - began < AT_ONCE_S, f"{name} was started again and kept on"
        assert sleepers.state(name) == "STOPPED" and not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_what_is_killed_has_ended_by_then(sleepers):
    for name in sleepers.programs:
        pid = sleepers.kill(name)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
