"""What the host has charged to the process of a sandbox: CPU time of its cgroup, and how long it
has been alive.

Both are the kernel's and start at 0 with each process: a cgroup is made anew for each, and names
the run by its inode, which the kernel does not give twice between two boots. A process that ended
by itself leaves its cgroup behind until the next one starts or the sandbox is removed, so what it
used until its last moment can still be read. A process that was kept while its sandbox slept begins
a new run when it is woken, from a baseline.
"""
import os
import time

from nodeworker.hypervisor.host_facts import UsageReading
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess, start_ticks
from nodeworker.hypervisor.qemu.records import Baseline, SandboxRecord
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.hypervisor.qemu.vm import Vm

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_usage(host: Host, sandbox_id: str) -> UsageReading | None:
    """See Driver.read_usage."""
    inode = host.cgroups.inode(sandbox_id)
    rundir = host.rundir(sandbox_id)
    record = rundir.find_record()
    if inode is None or record is not None and record.kept_since_s is not None:
        return None
    base = record.baseline if record else None
    cpu_ms, age_ms = _counters(host, rundir, record)
    if host.cgroups.inode(sandbox_id) != inode:
        return None  # a process has ended or begun meanwhile: the numbers may not belong together
    run = f"{boot_id()}/{inode}"
    if base is None:
        return UsageReading(run, cpu_ms, age_ms)
    return UsageReading(f"{run}/{base.number}", max(0, cpu_ms - base.cpu_ms),
                        max(0, age_ms - base.age_ms))


def new_baseline(vm: Vm) -> Baseline:
    """What the process of `vm` has used until now, for a run that begins."""
    return Baseline(vm.record.revision, *_counters(vm.host, vm.rundir, vm.record))


def _counters(host: Host, rundir: RunDir, record: SandboxRecord | None) -> tuple[int, int]:
    """CPU time and age of the process, in milliseconds."""
    return host.cgroups.cpu_ns(rundir.sandbox_id) // 1_000_000, _age_ms(rundir, record)


def _age_ms(rundir: RunDir, record: SandboxRecord | None) -> int:
    """How long the process has been alive; 0 once it is not, though it may still be there as a
    zombie."""
    if record is None or record.pid is None or not rundir.is_alive():
        return 0
    ticks = start_ticks(record.pid)
    return _since_ms(ticks) if ticks is not None and ticks == record.start_ticks else 0


def age_ms(process: QemuProcess) -> int:
    """How long a process has been alive, which must be."""
    return _since_ms(process.start_ticks)


def _since_ms(ticks: int) -> int:
    return max(0, int((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS_PER_S) * 1000))
