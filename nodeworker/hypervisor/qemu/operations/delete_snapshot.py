"""Delete a snapshot: its directory first, then the disk layers nothing refers to any more."""
from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.host import Host


def delete_snapshot(host: Host, snapshot_id: str) -> None:
    """See Driver.delete_snapshot."""
    fault("delete.begun")
    remove_tree(host.snapshots / snapshot_id, host.trash)
    fault("delete.files_removed")
    host.collect_layers()
