"""Processes of nginx, as /proc shows them."""
import contextlib
import os
from pathlib import Path


def workers_of(master: int) -> set[Path]:
    """Entries of /proc of the workers of a master, old ones that finish their connections too; not
    of those of its processes that look after what is cached."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return {entry for entry in (Path("/proc") / pid for pid in children) if is_nginx(entry)
            and b"worker process" in _title(entry)}


def is_nginx(entry: Path) -> bool:
    try:
        return (entry / "comm").read_text() == "nginx\n"
    except OSError:
        return False


def works_in(entry: Path, directory: Path) -> bool:
    """True of an nginx whose working directory that is, so that it is of this edge."""
    # What is not ours cannot be looked at.
    with contextlib.suppress(OSError):
        return is_nginx(entry) and os.path.samefile(entry / "cwd", directory)
    return False


def holds_the_port(worker: Path) -> bool:
    """False of one that has begun to end, and takes no new connections, or that has ended."""
    title = _title(worker)
    return title != b"" and b"is shutting down" not in title


def _title(entry: Path) -> bytes:
    """What nginx writes over the command line of a process; empty if it has ended."""
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
