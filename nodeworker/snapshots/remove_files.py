"""Removes the files of a snapshot from this host once nothing here needs them: a capture that has
carried its forks, or a copy of another node's snapshot. The snapshot itself is not deleted.
"""
from nodeworker.snapshots.snapshot_lock import snapshot_lock
from nodeworker.wiring import NodeDeps
from services.sandboxes.freed_when_stopped import end_snapshot
from services.snapshots import needed_on_node


def forget_transient(deps: NodeDeps, snapshot_id: str) -> None:
    """Remove the capture that carried forks; a row without files is harmless, so files go first."""
    deps.driver.delete_snapshot(snapshot_id)
    end_snapshot(snapshot_id, needed_on_node.transient_removed)


def remove_unneeded(deps: NodeDeps, snapshot_id: str) -> None:
    """Remove the files of a snapshot that this node did not need when it looked, unless a boot or a
    run has begun to need them since. Raises VmBusy while one fetches them, DriverError."""
    with snapshot_lock(deps, snapshot_id):
        if snapshot_id not in needed_on_node.list_needed(deps.settings.node_id):
            forget_transient(deps, snapshot_id)
