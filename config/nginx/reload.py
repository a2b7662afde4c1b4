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

from config import owned_files
from config.nginx.render import Nginx, directory_of, find_nginx, render, write
from config.nginx.workers import holds_the_port, workers_of, works_in
from config.settings import Settings, get_settings

_PATIENCE_S = 5.0


def main() -> None:
    """Reload; the exit code is 1, with a sentence, if nginx kept its old configuration."""
    reload(get_settings(), find_nginx())


def reload(settings: Settings, nginx: Nginx) -> None:
    """Have the running edge of the settings take them up; `nginx` says what it can do."""
    directory = directory_of(settings)
    master = int(owned_files.read(directory / "nginx.pid"))
    # Whose number it is stays so: another process gets no signal.
    process = os.pidfd_open(master)
    try:
        # The edge may have written any number.
        if not works_in(Path(f"/proc/{master}"), directory):
            sys.exit(f"{directory / 'nginx.pid'} names no nginx of this edge, so that none was told"
                     " to reload.")
        write(directory / "nginx.conf", render(settings, nginx, _open_files(master)))
        before = workers_of(master)
        signal.pidfd_send_signal(process, signal.SIGHUP)
    finally:
        os.close(process)
    if not _soon(lambda: workers_of(master) - before):
        sys.exit("nginx did not take the new configuration and goes on with the old one; its log"
                 " says why.")
    _soon(lambda: not any(map(holds_the_port, before)))


def _soon(condition: Callable[[], Any]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _open_files(master: int) -> int:
    lines = Path(f"/proc/{master}/limits").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Max open files")).split()[3])


if __name__ == "__main__":
    main()
