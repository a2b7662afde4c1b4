"""Machines that stand still because the host's disk is full, or nearly so.

QEMU keeps the write that failed and stops the guest (`werror=enospc`), whose disk would be broken
by an error. When there is room again the guest goes on, and the write is repeated. A guest whose
memory grew was stopped before the disk was full (`disk/ram_room.py`), and goes on once all of the
free-space floor is free.
"""
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.host_facts import DiskPause
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qmp import LOOK_S
from nodeworker.hypervisor.qemu.vm import locked_vm

# With less a machine that writes would stand still again at once.
_ROOM_MB = 64
_PAUSED_BY_ITS_DISK = "io-error"
_HELD = "paused"


def resume_if_paused(host: Host, sandbox_id: str) -> DiskPause | None:
    """See Driver.resume_if_paused."""
    with locked_vm(host, sandbox_id) as vm:
        if vm.rundir.inspect() is not VmState.RUNNING:
            return None
        with vm.monitor("looking at the state of", within_s=LOOK_S) as monitor:
            status = monitor.run("query-status")["status"]
            if status not in (_PAUSED_BY_ITS_DISK, _HELD):
                return None
            needed_mb = _ROOM_MB if status == _PAUSED_BY_ITS_DISK else host.settings.disk_floor_mb
            if host.disk_floor.space().free_bytes < needed_mb * MIB:
                return DiskPause.WAITING
            monitor.cont()
            return DiskPause.RESUMED
