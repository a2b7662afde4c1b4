"""Which lanes of this node work: each holds a lock from the end of its start until its process
ends, whatever ends it.

The heartbeat tells of them, so that no sandbox is placed on a node whose `ops` lane cannot start.
A record lock, because it is the process's alone: children of a killed worker do not keep it.
"""
import fcntl
import os
import struct
import threading
import time
from pathlib import Path
from typing import TextIO

from models.states import Lane

DIRECTORY = "lanes"
# What the kernel takes and gives: type, whence, start, length, process.
_FLOCK = "hhqqi"
# Locks go with the last file that is closed, so these stay open as long as the process lives.
_held: list[TextIO] = []


def hold(node_dir: Path, lane: Lane) -> None:
    """Say that `lane` has started, in its own process."""
    file = _open(node_dir, lane)
    _held.append(file)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another worker of the lane says the same, for as long as it lives
        threading.Thread(target=fcntl.lockf, args=(file, fcntl.LOCK_EX), name="lane",
                         daemon=True).start()


class LaneWatch:
    """The lanes as the ctl lane sees them; one that has just gone is given time to come back."""

    def __init__(self, node_dir: Path, grace_s: float) -> None:
        self._node_dir, self._grace_s = node_dir, grace_s
        self._seen_at = dict.fromkeys(Lane, time.monotonic())

    def list_up(self) -> list[Lane]:
        """Lanes that work now, or did less than the grace ago; all of them at first."""
        present = time.monotonic()
        for lane in Lane:
            # Its own it must not look at: closing the file would give up the lock.
            if lane is Lane.CTL or is_held(self._node_dir, lane):
                self._seen_at[lane] = present
        return [lane for lane in Lane if present - self._seen_at[lane] <= self._grace_s]


def is_held(node_dir: Path, lane: Lane) -> bool:
    """Whether a process of the lane has started and lives; never to be asked by that process."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with _open(node_dir, lane) as file:
        # Only asked: a lane that starts in this moment would find it taken.
        answered = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    return bool(struct.unpack(_FLOCK, answered)[0] != fcntl.F_UNLCK)


def make_directory(node_dir: Path) -> Path:
    """Where the lanes of a node say things to each other; made if it is not there."""
    directory = node_dir / DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _open(node_dir: Path, lane: Lane) -> TextIO:
    path = make_directory(node_dir) / lane.value
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
