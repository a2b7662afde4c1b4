"""Has a running edge take up today's settings, certificate and templates without losing a
connection: `python -m config.nginx.reload`, as root or as the edge's account.

New workers take new connections; the old ones finish what they have. Both are so at the end.
"""
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config.nginx.render import directory_of, find_nginx, render, write
from config.settings import get_settings

_PATIENCE_S = 5.0


def main() -> None:
    """Reload; the exit code is 1, with a sentence, if nginx kept its old configuration."""
    settings = get_settings()
    directory = directory_of(settings)
    master = int((directory / "nginx.pid").read_text())
    open_files = _open_files(master)
    write(directory / "nginx.conf", render(settings, find_nginx(), open_files))
    before = _workers(master)
    os.kill(master, signal.SIGHUP)
    if not _soon(lambda: _workers(master) - before):
        sys.exit("nginx did not take the new configuration and goes on with the old one; its log"
                 " says why.")
    _soon(lambda: all(map(_takes_no_more, before)))


def _soon(condition: Callable[[], Any]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _takes_no_more(worker: str) -> bool:
    """True of a worker of the old configuration that has begun to end."""
    try:
        return b"is shutting down" in Path(f"/proc/{worker}/cmdline").read_bytes()
    except OSError:
        return True


def _workers(master: int) -> set[str]:
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return {pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "nginx\n"}


def _open_files(master: int) -> int:
    lines = Path(f"/proc/{master}/limits").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Max open files")).split()[3])


if __name__ == "__main__":
    main()
