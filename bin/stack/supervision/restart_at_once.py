"""A plug-in of supervisord: what has ended is started again at once.

By itself supervisord starts it up to two seconds later: no signal ends its wait of a second, and it
starts only after the next one what it has found to have ended. Here 1. the signal of an ended child
ends the wait, and 2. the wait after that is left out.
"""
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

_Poll = Callable[[float], tuple[list[int], list[int]]]


class Waking:
    """The plug-in; it has no remote calls. supervisord makes it in its main thread."""

    def __init__(self, poller: Any) -> None:
        self._poll: _Poll = poller.poll
        self._wakes, signalled = os.pipe()
        for descriptor in (self._wakes, signalled):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        poller.register_readable(self._wakes)
        poller.poll = self._wait
        self._signalled = False

    def _wait(self, timeout_s: float) -> tuple[list[int], list[int]]:
        """What the poller says; after a signal at once, twice."""
        readable, writable = self._poll(0 if self._signalled else timeout_s)
        self._signalled = self._wakes in readable
        if self._signalled:
            readable.remove(self._wakes)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, 4096)
        return readable, writable


def install(supervisord: Any, **_: str) -> Waking:
    """For `supervisor.rpcinterface_factory`."""
    return Waking(supervisord.options.poller)
