"""The plug-in of supervisord: a signal that comes between a fork and the child's program."""
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from bin.stack.supervision.early_signals import _SIGNALS, install


@pytest.fixture
def noted():
    """The signals that came to handlers as supervisord has them, which note them and go on."""
    came = []
    before = {number: signal.signal(number, lambda number, _: came.append(number))
              for number in _SIGNALS}
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


def forked(fork):
    """What became of a child that was forked as supervisord does, and would end well."""
    options = SimpleNamespace(fork=fork)
    install(SimpleNamespace(options=options))
    pid = options.fork()
    if pid == 0:
        os._exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("number", sorted({*_SIGNALS} - {signal.SIGCHLD}))
def test_a_child_that_is_told_at_once_ends_of_it(noted, number):
    def told():
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), number)
        return pid

    assert forked(told) == -number


def test_what_is_said_to_supervisord_meanwhile_is_for_supervisord_alone(noted):
    def told():
        # Only to this thread: supervisord has no other.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        assert not noted
        return os.fork()

    assert forked(told) == 0
    assert signal.SIGTERM in noted
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
