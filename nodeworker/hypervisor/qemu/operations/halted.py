"""Machines that their guest has halted for good: a power-off past the init system, as by `systemctl
poweroff -ff`.

Without ACPI the kernel can only halt its CPUs then, with interrupts disabled. QEMU goes on waiting
for an interrupt that none of them will ever take, so nothing but its end is left for such a
machine; its disk is what counts.
"""
import re

from nodeworker.hypervisor.driver import DriverError, VmNotFound
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.process.spawn import end_vm
from nodeworker.hypervisor.qemu.records import Phase

_CPU = re.compile(r"\b[ER]FL=([0-9a-f]+)\b.*\bHLT=([01])\b")
_INTERRUPTS_ENABLED = 0x200


def end_if_halted(host: Host, sandbox_id: str) -> bool:
    """See Driver.end_if_halted."""
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            record = rundir.find_record()
            running = record is not None and record.phase is Phase.RUNNING and record.task is None
            if record is None or not running or not rundir.is_alive():
                return False
            with Monitor.of(rundir) as monitor:
                registers = monitor.run("human-monitor-command",
                                        {"command-line": "info registers -a"})
            if not is_halted(registers):
                return False
            end_vm(rundir, record.pid, record.start_ticks)
            return True
    except FileNotFoundError as error:
        raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error
    except QmpError as error:
        raise DriverError(f"looking at the CPUs of {sandbox_id}: {error}") from error


def is_halted(registers: str) -> bool:
    """True if every CPU is halted with interrupts disabled, so that none will ever execute again.
    Pure.

    A CPU that merely has nothing to do waits with interrupts enabled; one that is offline may wait
    without, but never all of them.
    """
    cpus = [(int(flags, 16), halted == "1") for flags, halted in _CPU.findall(registers)]
    return bool(cpus) and all(halted and not flags & _INTERRUPTS_ENABLED for flags, halted in cpus)
