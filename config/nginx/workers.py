"""Worker processes of nginx, as /proc shows them."""
from pathlib import Path


def workers_of(master: int) -> set[Path]:
    """Entries of /proc of the workers of a master, old ones that finish their connections too."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return {entry for entry in (Path("/proc") / pid for pid in children) if is_nginx(entry)}


def is_nginx(entry: Path) -> bool:
    try:
        return (entry / "comm").read_text() == "nginx\n"
    except OSError:
        return False


def holds_the_port(worker: Path) -> bool:
    """False of one that has begun to end, and takes no new connections, or that has ended."""
    try:
        title = (worker / "cmdline").read_bytes()
    except OSError:
        return False
    return title != b"" and b"is shutting down" not in title
