"""Machines that their guest has halted for good: a power-off past the init system, as by `systemctl
poweroff -ff`.

Without ACPI the kernel can only halt its CPUs then, with interrupts disabled. QEMU goes on waiting
for an interrupt that none of them will ever take, so nothing but its end is left for such a
machine; its disk is what counts.

The memory of the machine is given up with it, and under emulation QEMU reads the registers of CPUs
that go on meanwhile, one register after the other. So several looks have to agree, and the log says
where the CPUs stood: an idle machine was once ended after a single look, and nobody knows why.
"""
import logging
import re
import time

from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qemu_process import end_vm
from nodeworker.hypervisor.qemu.process.qmp import LOOK_S, QmpClient
from nodeworker.hypervisor.qemu.vm import locked_vm

log = logging.getLogger(__name__)
_LOOKS, _APART_S = 5, 0.01
_PLACE = re.compile(r"\b[ER]IP=([0-9a-f]{8,16})\b")
# Tried once for each line: a hostile QEMU sends half a megabyte that does nothing but begin.
_CPU = re.compile(r"^[ER]IP=[0-9a-f]+ [ER]FL=([0-9a-f]+)\b.*\bHLT=([01])\b", re.MULTILINE)
_SHOWN = 300
_INTERRUPTS_ENABLED = 0x200


def end_if_halted(host: Host, sandbox_id: str) -> bool:
    """See Driver.end_if_halted."""
    with locked_vm(host, sandbox_id) as vm:
        if vm.rundir.inspect() is not VmState.RUNNING:
            return False
        with vm.monitor("looking at the CPUs of", within_s=LOOK_S) as monitor:
            places = find_halted(monitor)
        if not places:
            return False
        log.warning("the guest of %s has halted its CPUs at %s", sandbox_id,
                    ", ".join(places)[:_SHOWN])
        end_vm(vm.rundir)
        return True


def find_halted(monitor: QmpClient) -> list[str]:
    """Addresses (hexadecimal) at which the CPUs have halted for good, none unless every look says
    so. Raises QmpError."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_APART_S)
        registers = monitor.run("human-monitor-command", {"command-line": "info registers -a"})
        if not is_halted(registers):
            return []
    return _PLACE.findall(registers)


def is_halted(registers: str) -> bool:
    """True if every CPU is halted with interrupts disabled, so that none will ever execute again.
    Pure.

    A CPU that merely has nothing to do waits with interrupts enabled; one that is offline may wait
    without, but never all of them.
    """
    cpus = [(int(flags, 16), halted == "1") for flags, halted in _CPU.findall(registers)]
    return bool(cpus) and all(halted and not flags & _INTERRUPTS_ENABLED for flags, halted in cpus)
