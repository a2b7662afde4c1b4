"""Remove a sandbox: process first, then its network, then its files, last the disk layers nothing
refers to any more."""
from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.spawn import end_vm
from nodeworker.hypervisor.qemu.rundir import RunDir


def destroy(host: Host, sandbox_id: str) -> None:
    """See Driver.destroy."""
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            _remove(host, rundir)
    except FileNotFoundError:
        if rundir.path.exists():
            raise
    host.collect_layers()


def destroy_half_made(host: Host, sandbox_id: str) -> None:
    """Remove what a create that died has left; a sandbox that was completely created stays.

    Decided under the sandbox's lock: a create that is still at work when we look may finish while
    we wait for it. Raises VmBusy if it is at work for longer.
    """
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            if rundir.was_created():
                return
            _remove(host, rundir)
    except FileNotFoundError:
        if rundir.path.exists():
            raise


def _remove(host: Host, rundir: RunDir) -> None:
    """Remove the sandbox whose lock is held."""
    fault("destroy.begun")
    record = rundir.find_record()
    end_vm(rundir, record.pid if record else None, record.start_ticks if record else None)
    fault("destroy.killed")
    host.network.release(rundir.sandbox_id)
    host.cgroups.remove(rundir.sandbox_id)
    fault("destroy.network_freed")
    remove_tree(rundir.path, host.trash)
    fault("destroy.files_removed")


def delete_snapshot(host: Host, snapshot_id: str) -> None:
    """See Driver.delete_snapshot."""
    fault("delete.begun")
    remove_tree(host.snapshots / snapshot_id, host.trash)
    fault("delete.files_removed")
    host.collect_layers()
