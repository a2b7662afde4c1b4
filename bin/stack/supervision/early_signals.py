"""A plug-in of supervisord: what is told to end while it is being started ends.

Between its fork and its program a child has supervisord's handlers, which take note of a signal and
do nothing. A stop that came there was lost, and took `stopwaitsecs` until supervisord killed. Here
1. signals wait while supervisord forks, and 2. the child takes them like any program before it lets
them come.
"""
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

_Fork = Callable[[], int]
# Those that supervisord has handlers for.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD,
            signal.SIGUSR2)


class Forking:
    """The plug-in; it has no remote calls."""

    def __init__(self, options: Any) -> None:
        options.fork = partial(_fork, options.fork)


def _fork(fork: _Fork) -> int:
    """The pid of the child; 0 in the child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = fork()
        if pid == 0:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def install(supervisord: Any, **_: str) -> Forking:
    """For `supervisor.rpcinterface_factory`."""
    return Forking(supervisord.options)
