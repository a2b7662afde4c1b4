"""The id that a node directory carries. An empty mount point has none, so it is not taken for a
directory that has lost everything."""
from pathlib import Path
from uuid import uuid4

from nodeworker.disks.durable import write_atomic

NAME = "directory-id"


def find(node_dir: Path) -> str | None:
    """The id of the directory; None without one."""
    try:
        return (node_dir / NAME).read_text().strip()
    except FileNotFoundError:
        return None


def make(node_dir: Path) -> str:
    """Give the directory an id, and return it."""
    made = uuid4().hex
    node_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(node_dir / NAME, made.encode())
    return made
