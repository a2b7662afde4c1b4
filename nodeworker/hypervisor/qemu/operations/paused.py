"""Machines that stand still because the host's disk was full when they wrote to it.

QEMU keeps the write that failed and stops the guest (`werror=enospc`), whose disk would be broken
by an error. When there is room again the guest goes on, and the write is repeated.
"""
from nodeworker.disks.space import MIB
from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.facts import DiskPause
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.vm import locked_vm

# With less it would stand still again at once.
_ROOM_BYTES = 64 * MIB
_PAUSED_BY_ITS_DISK = "io-error"


def resume_if_paused(host: Host, sandbox_id: str) -> DiskPause | None:
    """See Driver.resume_if_paused."""
    with locked_vm(host, sandbox_id) as vm:
        if vm.rundir.inspect() is not VmState.RUNNING:
            return None
        with vm.monitor("looking at the state of") as monitor:
            if monitor.run("query-status")["status"] != _PAUSED_BY_ITS_DISK:
                return None
            if host.space().free_bytes < _ROOM_BYTES:
                return DiskPause.WAITING
            monitor.cont()
            return DiskPause.RESUMED
