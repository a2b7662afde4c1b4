"""Bring a live VM whose operation died back to executing, and its record back to the truth."""
from dataclasses import replace

from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.vm import Vm


def recover(vm: Vm) -> None:
    """Make the guest execute and the recorded chain the one QEMU writes to; the task stays recorded
    for the caller.

    Raises DriverError if the monitor does not answer. Only for records in phase RUNNING.
    """
    with vm.monitor("recovering") as monitor:
        settle_chain(vm, monitor)
        monitor.cont()


def settle_chain(vm: Vm, monitor: Monitor) -> None:
    """A snapshot records its new layer before QEMU switches to it: if QEMU never did, take the
    layer off again."""
    *below, top = vm.machine.chain
    if monitor.active_node() == argv.node_name(top):
        return
    machine = replace(vm.machine, chain=tuple(below))
    vm.write(replace(vm.record, machine=machine), durable=True)
    vm.host.layers.path(top).unlink(missing_ok=True)
