"""What the host has charged to the process of a sandbox: CPU time of its cgroup, and how long it
has been alive.

Both are the kernel's and start at 0 with each process: a cgroup is made anew for each, and names
the run by its inode, which the kernel does not give twice between two boots. A process that ended
by itself leaves its cgroup behind until the next one starts or the sandbox is removed, so what it
used until its last moment can still be read.
"""
import os
import time

from nodeworker.hypervisor.facts import UsageReading
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qemu_process import start_ticks
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_usage(host: Host, sandbox_id: str) -> UsageReading | None:
    """See Driver.read_usage."""
    inode = host.cgroups.inode(sandbox_id)
    if inode is None:
        return None
    cpu_ms = host.cgroups.cpu_ns(sandbox_id) // 1_000_000
    age_ms = _age_ms(host.rundir(sandbox_id))
    if host.cgroups.inode(sandbox_id) != inode:
        return None  # a process has ended or begun meanwhile: the numbers may not belong together
    return UsageReading(f"{boot_id()}/{inode}", cpu_ms, age_ms)


def _age_ms(rundir: RunDir) -> int:
    """How long the process has been alive; 0 once it is not, though it may still be there as a
    zombie."""
    record = rundir.find_record()
    if record is None or record.pid is None or not rundir.is_alive():
        return 0
    ticks = start_ticks(record.pid)
    if ticks is None or ticks != record.start_ticks:
        return 0
    return max(0, int((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS_PER_S) * 1000))
