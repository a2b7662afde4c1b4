"""Waiting for what another process does in its own time."""
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_POLL_S = 0.03


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    """True as soon as `condition` holds; False if it never does."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(_POLL_S)
    return condition()


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Return once the condition holds; an assertion fails after `timeout_s` seconds."""
    assert eventually(condition, timeout_s), f"not within {timeout_s} s"


def becomes(probe: Callable[[], Any], wanted: Any = True, timeout_s: float = 60.0) -> None:
    """Return once `probe` gives `wanted`; else the assertion says what it gave instead."""
    seen: Any = None

    def equal() -> bool:
        nonlocal seen
        seen = probe()
        return bool(seen == wanted)

    assert eventually(equal, timeout_s), f"{seen}, wanted {wanted}"


def listens(port: int) -> bool:
    """Whether something takes connections at this port of the machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
