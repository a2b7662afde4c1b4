"""Whether the node directory is the one that this node has always written to.

An empty mount point looks like a directory that has lost every sandbox, and to a node that was
given another name, or another database, every sandbox looks like one that nobody wants. So the
directory carries an id, and the node's row repeats it: a node that finds another directory, or one
with sandboxes of which its row knows nothing, does not start, and a reconciler that finds one ends
no sandbox.
"""
from nodeworker.disks import directory_id
from nodeworker.wiring import NodeDeps
from services.hosts import nodes


class ForeignDirectory(Exception):
    """The node directory is not the one of which this node's row knows."""


def check(deps: NodeDeps) -> None:
    """Raises ForeignDirectory if the node's row knows of another directory, or of none although
    there is something in this one."""
    directory, node_id = deps.settings.node_dir, deps.settings.node_id
    known, found = nodes.find_directory_id(node_id), directory_id.find(directory)
    if known is not None and found != known:
        raise ForeignDirectory(
            f"{directory} is not the directory that node {node_id} wrote before. Mount its disk;"
            " or, if its files are gone for good, let the node begin anew:"
            f" `svc-admin node-forget-directory {node_id}`.")
    if known is None and found is not None and _holds_anything(deps):
        raise ForeignDirectory(
            f"{directory} has sandboxes or snapshots of a node, and the row of {node_id} in this"
            " database knows nothing of them: they would be removed. Look at SVC_NODE_ID and"
            " SVC_DATABASE_URL. Only if nobody needs what is there: remove"
            f" {directory / directory_id.NAME}, and start it again.")


def claim(deps: NodeDeps) -> None:
    """Give the directory an id and write it into the node's row, unless the row has one."""
    if nodes.find_directory_id(deps.settings.node_id) is None:
        # The file first: if we die in between, the next start finds it and writes the row.
        directory = deps.settings.node_dir
        nodes.set_directory_id(deps.settings.node_id,
                               directory_id.find(directory) or directory_id.make(directory))


def is_ours(deps: NodeDeps) -> bool:
    """True if the directory is there and is the one of which this node's row knows."""
    known = nodes.find_directory_id(deps.settings.node_id)
    return known is not None and directory_id.find(deps.settings.node_dir) == known


def _holds_anything(deps: NodeDeps) -> bool:
    return bool(deps.driver.list_sandboxes() or deps.driver.list_snapshots())
