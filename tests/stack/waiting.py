"""Waiting for what an agent does in its own time."""
import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    """True as soon as `condition` holds; False if it never does."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
