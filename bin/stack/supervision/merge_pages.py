"""A plug-in of supervisord: pages of its forks that hold the same again are merged by the kernel.

A fork copies a page of the loaded code when it counts a reference there, and most counts go back to
what they were. The kernel can make one page of equal ones (KSM), until somebody writes to it. 1.
`mark` says of which memory: what supervisord has loaded, so what its forks share with it, and
nothing of the programs that they start. 2. The kernel looks for equal pages only while the whole
host lets it. Where it does not, this plug-in has it look in the second minute after the start, and
then every two hours, ten times as fast as by default: that takes a minute or two, at the usual pace
a quarter of an hour. What has been merged stays so. 3. Where somebody else has switched it on, it
is nobody's to switch off.
"""
import contextlib
import ctypes
import fcntl
import os
import re
from pathlib import Path
from typing import Any

from supervisor import events

KERNEL = Path("/sys/kernel/mm/ksm")
# One file for all stacks of the host: its lock says that a supervisord looks after a search, its
# content that there is one, and how fast the kernel searched before. Like what the kernel was told
# it is gone after a reboot.
SEARCH = Path("/run/svc-merging")
_SWITCH, _PACE = "run", "pages_to_scan"
_OFF, _ON, _FAST = "0\n", "1\n", "1000\n"
_MADV_MERGEABLE = 12
_WRITABLE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ \S+ *(.*)\n")
_FIRST_MINUTE, _MINUTES = 2, 120
# A page is merged when it is seen unchanged for the second time, with whatever is seen after it.
_SCANS, _LONGEST_MINUTES = 3, 30
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def mark() -> None:
    """Let the memory that this process has by now be merged, also in its forks; a kernel that
    cannot merge leaves it as it is."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = [_WRITABLE.fullmatch(line) for line in maps]
    for each in filter(None, found):
        if each[3] != "[stack]":
            start, end = int(each[1], 16), int(each[2], 16)
            _libc.madvise(start, end - start, _MADV_MERGEABLE)


class Merging:
    """The plug-in; it has no remote calls. `minute` is called once a minute."""

    def __init__(self, kernel: Path = KERNEL, search: Path = SEARCH) -> None:
        self._kernel, self._search = kernel, search
        self._minutes = 0
        self._lock: int | None = None
        self._until_scan, self._until_minute, self._usual_pace = 0, 0, ""

    def minute(self) -> None:
        """Begin a search that is due, or end one that has seen everything."""
        self._minutes += 1
        with contextlib.suppress(OSError, ValueError):  # no such kernel, or not ours to switch
            if self._lock is None:
                self._lock = self._begin()
            elif self._scans() >= self._until_scan or self._minutes >= self._until_minute:
                self.end()

    def _begin(self) -> int | None:
        """The lock of a search that begins now, or of one whose supervisord was killed; None if
        there is no search to begin."""
        with contextlib.ExitStack() as stack:
            lock = os.open(self._search, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            until_scan = self._scans() + _SCANS
            state, pace = self._told(_SWITCH), os.read(lock, 20).decode()
            if not (pace and state == _ON):
                if state != _OFF or self._minutes % _MINUTES != _FIRST_MINUTE:
                    return None
                pace = pace or self._told(_PACE)  # of one that died before it switched on
                os.pwrite(lock, pace.encode(), 0)
                stack.callback(os.ftruncate, lock, 0)
                self._tell(_PACE, _FAST)
                stack.callback(self._tell, _PACE, pace)
                self._tell(_SWITCH, _ON)
            self._until_scan, self._usual_pace = until_scan, pace
            self._until_minute = self._minutes + _LONGEST_MINUTES
            stack.pop_all()
            return lock

    def end(self) -> None:
        """Have the kernel search no more, if it was this plug-in that made it."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        with contextlib.suppress(OSError):
            for name, ours, before in ((_SWITCH, _ON, _OFF), (_PACE, _FAST, self._usual_pace)):
                if self._told(name) == ours:
                    self._tell(name, before)
            os.ftruncate(lock, 0)
        os.close(lock)

    def end_abandoned(self) -> None:
        """As `end`, for a search whose supervisord was killed: nobody has its lock."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            lock = os.open(self._search, os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if pace := os.read(lock, 20).decode():
                self._lock, self._usual_pace = lock, pace
                stack.pop_all()
        self.end()

    def _told(self, name: str) -> str:
        return (self._kernel / name).read_text()

    def _tell(self, name: str, value: str) -> None:
        (self._kernel / name).write_text(value)

    def _scans(self) -> int:
        return int(self._told("full_scans"))


def install(_: Any, **__: str) -> Merging:
    """For `supervisor.rpcinterface_factory`."""
    merging = Merging()
    events.subscribe(events.Tick60Event, lambda _: merging.minute())
    events.subscribe(events.SupervisorStoppingEvent, lambda _: merging.end())
    return merging
