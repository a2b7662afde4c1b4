"""Remove a sandbox: process first, then its network, then its files, last the disk layers nothing
refers to any more."""
from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.spawn import end_vm


def destroy(host: Host, sandbox_id: str) -> None:
    """See Driver.destroy."""
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            fault("destroy.begun")
            record = rundir.find_record()
            end_vm(rundir, record.pid if record else None, record.start_ticks if record else None)
            fault("destroy.killed")
            host.network.release(sandbox_id)
            host.cgroups.remove(sandbox_id)
            fault("destroy.network_freed")
            remove_tree(rundir.path, host.trash)
            fault("destroy.files_removed")
    except FileNotFoundError:
        if rundir.path.exists():
            raise
    host.collect_layers()


def delete_snapshot(host: Host, snapshot_id: str) -> None:
    """See Driver.delete_snapshot."""
    fault("delete.begun")
    remove_tree(host.snapshots / snapshot_id, host.trash)
    fault("delete.files_removed")
    host.collect_layers()
