"""The agent's event loop: file descriptors, timers and a hook at the end of each turn, in one
thread.

One turn: wait for events, run their callbacks, run due timers, then flush what the callbacks
queued. Flushing last lets a short command's output and its result leave in a single write.
"""
import heapq
import itertools
import select
import sys
import time
from collections.abc import Callable

Callback = Callable[[], None]
READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Timer:
    """A callback that is due once; `cancel` makes it a no-op."""

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Forget the callback; safe to call at any time."""
        self.callback = None


class Loop:
    """Runs callbacks when descriptors are ready or times have come; an exception in one never ends
    the others.

    It asks epoll itself: the standard library's selectors do the same with much more Python, all
    of which an emulated guest translates anew before it can answer.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[int, Callback]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()
        self._at_end: list[Callback] = []

    def watch(self, descriptor: int, events: int, callback: Callback) -> None:
        """Call `callback` while `descriptor` is ready for `events` (READ, WRITE or both) or broken;
        replaces an earlier watch; 0 events removes it."""
        known, wanted = self._watched.get(descriptor), (events, callback)
        if known == wanted:
            return
        if not events:
            if known:
                del self._watched[descriptor]
                self._epoll.unregister(descriptor)
            return
        if not known:
            self._epoll.register(descriptor, events)
        elif known[0] != events:
            self._epoll.modify(descriptor, events)
        self._watched[descriptor] = wanted

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
        events = self._epoll.poll(self._wait_s())
        ready = [(descriptor, self._watched[descriptor]) for descriptor, _ in events]
        for descriptor, watch in ready:
            # An earlier callback of this turn may have closed this descriptor, or closed it and
            # opened another.
            if self._watched.get(descriptor) is watch:
                _guarded(watch[1])
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
