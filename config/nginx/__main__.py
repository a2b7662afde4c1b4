"""Starts the edge: `python -m config.nginx`, which becomes nginx.

1. The configuration is rendered into the edge's directory, which becomes the working directory, so
that its processes can be told from those of other stacks: nginx writes over its environment. 2.
Workers of a master that was killed are asked to end; they give up the port at once and finish what
they have. 3. What nginx logs goes through sed, which cuts off the request and the host: a query may
hold a credential, and the host of a preview is a secret. 4. nginx takes this process's place.
"""
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from config.nginx.render import directory_of, find_nginx, render, write
from config.nginx.workers import holds_the_port, works_in
from config.settings import SettingsError, get_settings

_OPEN_FILES = 65536
_LETTING_GO_S = 2.0
# nginx ends its messages with: client, server, request, upstream, host, referrer.
_LOG_FILTER = ["sed", "-u", "-e", "s/, request: \".*//", "-e", "s/, host: \".*//"]


def main() -> None:
    """Become nginx."""
    settings, nginx = get_settings(), find_nginx()
    directory = directory_of(settings)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(directory)
    configuration = directory / "nginx.conf"
    write(configuration, render(settings, nginx, raise_open_files()))
    end_orphans(directory)
    filter_logs()
    os.execvp("nginx", [*nginx.command, "-p", f"{directory}/", "-c", str(configuration)])


def raise_open_files() -> int:
    """How many files a worker may have open from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def end_orphans(directory: Path) -> None:
    """Ask processes of an nginx that worked in `directory` to end, its master being gone, and wait
    until they have let go of the port: nginx tries again for it only after half a second."""
    orphans = [entry for entry in Path("/proc").iterdir() if works_in(entry, directory)]
    for entry in orphans:
        with contextlib.suppress(OSError):
            os.kill(int(entry.name), signal.SIGQUIT)
    deadline = time.monotonic() + _LETTING_GO_S
    while any(map(holds_the_port, orphans)) and time.monotonic() < deadline:
        time.sleep(0.01)


def filter_logs() -> None:
    """Send what this process prints from now on through the filter, which ends with its last
    writer."""
    reader, writer = os.pipe()
    subprocess.Popen(_LOG_FILTER, stdin=reader)
    os.close(reader)
    # A pipe of this account's own, so that nginx may open /dev/stdout.
    os.dup2(writer, sys.stdout.fileno())
    os.dup2(writer, sys.stderr.fileno())
    os.close(writer)


if __name__ == "__main__":
    try:
        main()
    except SettingsError as error:
        sys.exit(str(error))
