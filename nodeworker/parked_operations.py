"""Announces what is parked on this node as soon as it is due.

1. Nearly always nothing is parked, so the database is not asked several times a second whether
something is due. It is asked when the first that was seen is due, after a lane has said that it
parked something, and every two seconds anyway. 2. A lane says so through a pipe, after it wrote the
row. If it dies in between, what it parked is announced late by those two seconds at most.
"""
import contextlib
import logging
import os
import select
import time
from pathlib import Path

from models.database import DatabaseFailed, now
from nodeworker import lanes_alive
from nodeworker.wiring import NodeDeps
from services.deploys import runs
from services.operations import sweeps

log = logging.getLogger(__name__)
_LOOK_S = 2.0
# However much is parked, there are ten looks a second at most.
_APART_S = 0.1


def tell_ctl(node_dir: Path) -> None:
    """Tell the ctl lane of this node that something was parked just now."""
    # Without a listener, which looks when it starts, or with one that has not heard the last yet,
    # nothing needs to be said.
    with contextlib.suppress(OSError):
        pipe = os.open(_pipe(node_dir), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, b".")
        finally:
            os.close(pipe)


def listen(node_dir: Path) -> int:
    """The end of the pipe from which the ctl lane hears the others."""
    lanes_alive.make_directory(node_dir)
    pipe = _pipe(node_dir)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(pipe, 0o600)
    # Open for writing, too, so that it has no end when a lane closes it.
    return os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def announce(deps: NodeDeps, pipe: int) -> None:
    """Announce what is parked once it is due; never returns."""
    said = select.poll()
    said.register(pipe, select.POLLIN)
    while True:
        said.poll(1000 * max(announce_due(deps) - _APART_S, 0))
        time.sleep(_APART_S)
        with contextlib.suppress(BlockingIOError):
            os.read(pipe, 65536)


def announce_due(deps: NodeDeps) -> float:
    """Announce what is due; returns in how many seconds to look again at the latest."""
    settings = deps.settings
    try:
        seen = (sweeps.announce_due(settings, deps.queue, settings.node_id),
                runs.announce_due(deps.rules, settings.node_id, settings.node_dead_after_s))
    except DatabaseFailed as error:
        log.warning("parked operations not announced: %s", type(error).__name__)
        return 1.0
    return min([_LOOK_S, *((due - now()).total_seconds() for due in seen if due)])


def _pipe(node_dir: Path) -> Path:
    return node_dir / lanes_alive.DIRECTORY / "parked"
