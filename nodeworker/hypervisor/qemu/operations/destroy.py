"""Remove a sandbox: process first, then its network, then its files, last the disk layers nothing
refers to any more."""
from contextlib import suppress

from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import VmNotFound
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qemu_process import end_vm
from nodeworker.hypervisor.qemu.vm import Vm, locked_vm


def destroy(host: Host, sandbox_id: str) -> None:
    """See Driver.destroy."""
    with suppress(VmNotFound), locked_vm(host, sandbox_id) as vm:
        _remove(vm)
    host.collect_layers()


def destroy_half_made(host: Host, sandbox_id: str) -> None:
    """Remove what a create that died has left; a sandbox that was completely created stays.

    Decided under the sandbox's lock: a create that is still at work when we look may finish while
    we wait for it. Raises VmBusy if it is at work for longer.
    """
    with suppress(VmNotFound), locked_vm(host, sandbox_id) as vm:
        if not vm.rundir.was_created():
            _remove(vm)


def _remove(vm: Vm) -> None:
    fault("destroy.begun")
    end_vm(vm.rundir)
    fault("destroy.killed")
    vm.host.network.release(vm.sandbox_id)
    vm.host.cgroups.remove(vm.sandbox_id)
    fault("destroy.network_freed")
    remove_tree(vm.rundir.path, vm.host.trash)
    fault("destroy.files_removed")
