"""What the edge has written to its disk of what passes through it."""
import os
from contextlib import suppress

from config.nginx.workers import workers_of


def stored_bodies(stack):
    """Files below the edge's directory that its workers have open: nginx takes a file's name away
    as soon as it is made, so no listing shows it."""
    edge, found = stack.site.data_dir / "edge", []
    for worker in workers_of(stack.supervisor.pid("edge")):
        with suppress(FileNotFoundError):  # it has ended
            for entry in (worker / "fd").iterdir():
                with suppress(FileNotFoundError):
                    found.append(os.readlink(entry))
    return [link for link in found if link.startswith(f"{edge}/")]
