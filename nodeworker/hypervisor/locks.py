"""Locks on files of the host: the kernel frees them when their holder dies, however it dies."""
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeworker.hypervisor.driver import VmBusy

OPERATION_WAIT_S = 2.0
_POLL_S = 0.01


def try_lock(path: Path) -> int | None:
    """Lock `path` exclusively and make sure it still is the file of that name; None if another
    holds it.

    Closing the returned descriptor, by all who inherited it, frees the lock. Raises
    FileNotFoundError without directory.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def wait_lock(path: Path, *, make_directory: bool = False,
              limit_s: float = OPERATION_WAIT_S) -> int:
    """`try_lock` until it succeeds; raises VmBusy after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        if make_directory:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = try_lock(path)
        except FileNotFoundError:
            if not make_directory:
                raise
            continue
        if descriptor is not None:
            return descriptor
        if time.monotonic() > deadline:
            raise VmBusy(f"another worker holds {path}")
        time.sleep(_POLL_S)


@contextmanager
def locked(path: Path, *, make_directory: bool = False) -> Iterator[None]:
    """Hold the lock `path` in the block; raises VmBusy, or FileNotFoundError if its directory does
    not exist."""
    descriptor = wait_lock(path, make_directory=make_directory)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def hold(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock on the file `path` in the block, alone or with others who hold it `shared`;
    the file stays. Raises BlockingIOError if it is not to `wait` for another."""
    with path.open("a") as lock:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                    | (0 if wait else fcntl.LOCK_NB))
        yield


@contextmanager
def nobody_at_work(path: Path) -> Iterator[bool]:
    """True, and the lock `path` held in the block, if nobody holds it; False also if its directory
    is gone or another."""
    try:
        descriptor = try_lock(path)
    except FileNotFoundError:
        descriptor = None
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_locked(path: Path) -> bool:
    """True while somebody holds the lock; found by trying for a shared one, which is let go at
    once."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
