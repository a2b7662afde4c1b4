"""Bring a live VM whose operation died back to executing, and its record back to the truth."""
from dataclasses import replace

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.monitor import IoLimit, Monitor
from nodeworker.hypervisor.qemu.vm import Vm


def recover(vm: Vm) -> None:
    """Make the guest execute, with its disk as fast as it may be, and the recorded chain the one
    QEMU writes to; the task stays recorded for the caller.

    Raises DriverError if the monitor does not answer, or lies. Only for records in phase RUNNING.
    """
    with vm.monitor("recovering") as monitor:
        # a worker that died before it let the guest go had perhaps not said so
        monitor.limit_io(IoLimit.of(vm.host.settings))
        monitor.cont()  # now: whatever becomes of the record, the guest goes on
        settle_chain(vm, monitor)


def settle_chain(vm: Vm, monitor: Monitor) -> None:
    """A snapshot records its new layer before QEMU switches to it: if QEMU never did, take the
    layer off again.

    Raises DriverError, with nothing changed, unless it can be so: the monitor may be what a hostile
    guest made of QEMU, and root removes here what it talks us into.
    """
    *below, top = vm.machine.chain
    active = monitor.active_node()
    if active == argv.node_name(top):
        return
    if active != argv.node_name(below[-1]) or not _is_new(vm):
        raise DriverError(f"QEMU of {vm.sandbox_id} says that it writes to {active[:40]!r}, which"
                          " cannot be")
    machine = replace(vm.machine, chain=tuple(below))
    vm.write(replace(vm.record, machine=machine), durable=True)
    flatten.close_layer(monitor, top)
    vm.host.layers.path(top).unlink(missing_ok=True)


def _is_new(vm: Vm) -> bool:
    """Whether the top layer is as a snapshot adds it: empty, on a layer of the sandbox's own, which
    is frozen only after QEMU has switched."""
    machine, layers = vm.machine, vm.host.layers
    own = machine.chain[len(machine.base):]
    return (len(own) > 1 and not any(map(layers.is_frozen, own[-2:]))
            and layers.is_empty(own[-1], machine.disk_bytes))
