"""The agent's event loop: file descriptors, timers and a hook at the end of each turn, in one
thread.

One turn: wait for events, run their callbacks, run due timers, then flush what the callbacks
queued. Flushing last lets a short command's output and its result leave in a single write.
"""
import heapq
import itertools
import selectors
import sys
import time
from collections.abc import Callable

Callback = Callable[[], None]


class Timer:
    """A callback that is due once; `cancel` makes it a no-op."""

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Forget the callback; safe to call at any time."""
        self.callback = None


class Loop:
    """Runs callbacks when descriptors are ready or times have come; an exception in one never ends
    the others."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()
        self._at_end: list[Callback] = []

    def watch(self, descriptor: int, events: int, callback: Callback) -> None:
        """Call `callback` while `descriptor` is ready for `events`; replaces an earlier watch; 0
        events removes it."""
        known = descriptor in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(descriptor)
        elif known:
            self._selector.modify(descriptor, events, callback)
        else:
            self._selector.register(descriptor, events, callback)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching `descriptor`; must be called before it is closed."""
        self.watch(descriptor, 0, _nothing)

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call `callback` once, `delay_s` seconds of running guest time from now."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._sequence), timer))
        return timer

    def call_at_end(self, callback: Callback) -> None:
        """Call `callback` once when this turn's events have been handled."""
        self._at_end.append(callback)

    def run(self) -> None:
        """Turn for ever."""
        while True:
            self._turn()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._wait_s()):
            # An earlier callback of this turn may have closed this descriptor, or closed it and
            # opened another.
            if self._selector.get_map().get(key.fd) is key:
                _guarded(key.data)
        while self._timers and self._timers[0][0] <= time.monotonic():
            timer = heapq.heappop(self._timers)[2]
            if timer.callback:
                _guarded(timer.callback)
        while self._at_end:
            _guarded(self._at_end.pop(0))

    def _wait_s(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())


def _nothing() -> None:
    """Stands in where a callback is never called."""


def _guarded(callback: Callback) -> None:
    """Run one callback; whatever goes wrong in it concerns one connection and must not end the
    agent."""
    try:
        callback()
    except Exception:
        sys.excepthook(*sys.exc_info())
