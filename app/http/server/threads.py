"""Threads that make calls, few short ones at a time.

1. Of the threads that rest the one that rested last takes the next call, so that it finds its
memory where the processor has it at hand. Those of `concurrent.futures` take turns, and each that
takes up a call wakes another for nothing. 2. A call is short until it has taken SHORT_S. Of short
ones SHORT_MOST are made at a time, the others wait in line: threads that compute take Python's lock
from each other, and of thirty requests at once a fifth fewer were answered without this
(docs/decisions/0054). Calls that take longer wait for something, and hold nobody up.
"""
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)
SHORT_S, SHORT_MOST = 0.003, 2
Call = Callable[[], object]


class Threads:
    """At most `most` threads, started when they are needed. Its methods may be called from any
    thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        # A signal handler takes it too, perhaps of the thread that holds it (gunicorn's SIGQUIT).
        self._lock = threading.RLock()
        self._line: deque[Call] = deque()
        self._resting: list[_Thread] = []
        self._count = 0
        # The latest calls in order, with all that are short, and how many of them are.
        self._latest: deque[_Begun] = deque()
        self._short = 0
        self._clock: _Clock | None = None
        self._is_over = False

    @property
    def busy(self) -> int:
        """How many make a call."""
        return self._count - len(self._resting)

    def run(self, call: Call) -> None:
        """Have a thread make the call; what that raises is logged. Raises RuntimeError if there is
        no thread and none can be started."""
        with self._lock:
            self._line.append(call)
        self.make_calls()

    def make_calls(self) -> float | None:
        """Begin what may begin of the line. Returns in how many seconds more may; None if nothing
        is to, or only once a thread is free."""
        while True:
            with self._lock:
                if not self._resting and self._count == self._most:
                    return None
                wait_s = self._wait_s()
                if wait_s is None or wait_s > 0:
                    return wait_s
                call, begun = self._begin()
                thread = self._resting.pop() if self._resting else None
                self._count += thread is None
            if thread is not None:
                thread.give(call, begun)
            elif not self._start_thread(call, begun):
                return None

    def shutdown(self, wait: bool = False) -> None:
        """Let each thread end once it has nothing to do; gunicorn does not want to `wait`."""
        assert not wait
        with self._lock:
            self._is_over = True
            resting, self._resting = self._resting, []
            self._count -= len(resting)
            if self._clock is not None:
                self._clock.end()
        for thread in resting:
            thread.give(None, None)

    def next_call(self, thread: "_Thread", made: "_Begun") -> "tuple[Call, _Begun] | None":
        """What a thread that has made its call is to do, which it waits for; None if it is to
        end."""
        with self._lock:
            self._end(made)
            if self._wait_s() == 0:
                return self._begin()
            if self._is_over and not self._line:
                self._count -= 1
                return None
            self._resting.append(thread)
        return thread.wait()

    def _wait_s(self) -> float | None:
        """In how many seconds the first of the line may begin, if a thread is free; the clock looks
        then. None if there is no line."""
        if not self._line:
            return None
        present = time.monotonic()
        while self._latest and (self._latest[0].is_over
                                or self._latest[0].at_s + SHORT_S <= present):
            self._end(self._latest.popleft())
        if self._short < SHORT_MOST:
            return 0.0
        if not self._wind_clock():
            return 0.0
        return self._latest[0].at_s + SHORT_S - present

    def _wind_clock(self) -> bool:
        """False if the host has no thread left for one."""
        if self._clock is None:
            clock = _Clock(self)
            try:
                clock.start()
            except RuntimeError:
                return False
            self._clock = clock
        self._clock.wind()
        return True

    def _begin(self) -> "tuple[Call, _Begun]":
        begun = _Begun()
        self._latest.append(begun)
        self._short += 1
        return self._line.popleft(), begun

    def _end(self, begun: "_Begun") -> None:
        """It is short no more."""
        self._short -= not begun.is_over
        begun.is_over = True

    def _start_thread(self, call: Call, begun: "_Begun") -> bool:
        """False if the host has none left, and those that there are are busy: one of them makes the
        call."""
        try:
            _Thread(self, call, begun).start()
        except RuntimeError:
            with self._lock:
                self._end(begun)
                self._count -= 1
                if not self._count:
                    raise
                self._line.appendleft(call)
                return bool(self._resting)
        return True


class _Begun:
    """A call that has begun; `is_over` once it has ended or is short no more."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        self.is_over = False


class _Clock(threading.Thread):
    """Looks after the line of calls while it waits for short ones to end."""

    def __init__(self, threads: Threads) -> None:
        super().__init__(name="short-calls", daemon=True)
        self._threads = threads
        self._wound = threading.Event()
        self._is_over = False

    def wind(self) -> None:
        self._wound.set()

    def end(self) -> None:
        self._is_over = True
        self._wound.set()

    def run(self) -> None:
        while not self._is_over:
            self._wound.wait()
            self._wound.clear()
            while wait_s := self._threads.make_calls():
                time.sleep(wait_s)


class _Thread(threading.Thread):
    def __init__(self, threads: Threads, call: Call, begun: _Begun) -> None:
        super().__init__(name="request", daemon=True)
        self._threads = threads
        self._work: tuple[Call, _Begun] | None = (call, begun)
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, call: Call | None, begun: _Begun | None) -> None:
        self._work = None if call is None or begun is None else (call, begun)
        self._given.release()

    def wait(self) -> tuple[Call, _Begun] | None:
        self._given.acquire()
        return self._work

    def run(self) -> None:
        work = self._work
        while work is not None:
            call, begun = work
            self._work = work = None  # what the call holds may go with it
            try:
                call()
            except BaseException:
                log.exception("a call in a thread of the server failed")
            del call
            work = self._threads.next_call(self, begun)
