"""Whether the node directory is the one that this node has always written to.

An empty mount point looks like a directory that has lost every sandbox. So the directory carries an
id, and the node's row repeats it: a node that finds another directory does not start, and a
reconciler that finds one ends no sandbox.
"""
from uuid import uuid4

from nodeworker.disks.durable import write_atomic
from nodeworker.wiring import NodeDeps
from services.hosts import nodes

NAME = "directory-id"


class ForeignDirectory(Exception):
    """The node directory is not the one of which this node's row knows."""


def check(deps: NodeDeps) -> None:
    """Raises ForeignDirectory if the node's row knows of another directory."""
    known = nodes.find_directory_id(deps.settings.node_id)
    if known is not None and _read(deps) != known:
        raise ForeignDirectory(
            f"{deps.settings.node_dir} is not the directory that node {deps.settings.node_id} wrote"
            " before. Mount its disk; or, if its files are gone for good, let the node begin anew:"
            f" `svc-admin node-forget-directory {deps.settings.node_id}`.")


def claim(deps: NodeDeps) -> None:
    """Give the directory an id and write it into the node's row, unless the row has one."""
    if nodes.find_directory_id(deps.settings.node_id) is None:
        # The file first: if we die in between, the next start finds it and writes the row.
        nodes.set_directory_id(deps.settings.node_id, _read(deps) or _write(deps))


def is_ours(deps: NodeDeps) -> bool:
    """True if the directory is there and is the one of which this node's row knows."""
    known = nodes.find_directory_id(deps.settings.node_id)
    return known is not None and _read(deps) == known


def _read(deps: NodeDeps) -> str | None:
    try:
        return (deps.settings.node_dir / NAME).read_text().strip()
    except FileNotFoundError:
        return None


def _write(deps: NodeDeps) -> str:
    made = uuid4().hex
    deps.settings.node_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(deps.settings.node_dir / NAME, made.encode())
    return made
