"""Threads that make calls; of those that rest the one that rested last takes the next, so that it
finds its memory, and the connection to the database that is its own, where the processor has them
at hand.

The threads of `concurrent.futures` take turns, and each that takes up a call wakes another one for
nothing.
"""
import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)
Call = Callable[[], object]


class Threads:
    """At most `most` threads, started when they are needed. What they have no time for waits in
    line. Its methods may be called from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._line: deque[Call] = deque()
        self._resting: list[_Thread] = []
        self._count = 0
        self._is_over = False

    def run(self, call: Call) -> None:
        """Have a thread make the call; what that raises is logged. Raises RuntimeError if there is
        no thread and none can be started."""
        with self._lock:
            resting = self._resting.pop() if self._resting else None
            if resting is None and self._count == self._most:
                self._line.append(call)
                return
            self._count += resting is None
        if resting is not None:
            resting.give(call)
            return
        try:
            _Thread(self, call).start()
        except RuntimeError:
            with self._lock:
                self._count -= 1
                if not self._count:
                    raise
                self._line.append(call)

    @property
    def busy(self) -> int:
        """How many make a call."""
        return self._count - len(self._resting)

    def shutdown(self, wait: bool = False) -> None:
        """Let each thread end once it has nothing to do; gunicorn does not want to `wait`."""
        assert not wait
        with self._lock:
            self._is_over = True
            resting, self._resting = self._resting, []
            self._count -= len(resting)
        for thread in resting:
            thread.give(None)

    def next_call(self, thread: "_Thread") -> Call | None:
        """What a thread that has made its call is to do; None if it is to end."""
        with self._lock:
            if self._line:
                return self._line.popleft()
            if self._is_over:
                self._count -= 1
                return None
            self._resting.append(thread)
        return thread.wait()


class _Thread(threading.Thread):
    def __init__(self, threads: Threads, call: Call) -> None:
        super().__init__(name="request", daemon=True)
        self._threads = threads
        self._call: Call | None = call
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, call: Call | None) -> None:
        self._call = call
        self._given.release()

    def wait(self) -> Call | None:
        self._given.acquire()
        return self._call

    def run(self) -> None:
        call = self._call
        while call is not None:
            try:
                call()
            except BaseException:
                log.exception("a call in a thread of the server failed")
            self._call = None  # what it holds may go
            call = self._threads.next_call(self)
