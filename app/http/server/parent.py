"""Ends a worker process with the process that started it."""
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the kernel send this process SIGTERM when `parent` is gone, also if it was killed; at
    once if it is gone already. Linux only; the signal comes when the parent's thread that made us
    ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
