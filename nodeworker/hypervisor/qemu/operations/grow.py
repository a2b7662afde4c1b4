"""Grow the disk of a running sandbox under its guest, which goes on using it.

1. The record gets the new size first, durably: a layer made from it later must never be smaller
   than the one below, or what the guest wrote beyond would be cut off. A larger one is harmless,
   whatever became of this call.
2. QEMU enlarges the top layer and tells the guest, also when the layer is that large already: the
   guest of a layer made in between has not been told. Nothing else changes, so a crash at any
   instant needs no repair but a repetition.
"""
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import settle_chain
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.vm import Vm, created_vm


def grow_disk(host: Host, sandbox_id: str, size_bytes: int) -> None:
    """See Driver.grow_disk."""
    host.disk_floor.check()
    with created_vm(host, sandbox_id) as vm:
        if vm.record.phase is not Phase.RUNNING or not vm.rundir.is_alive():
            raise DriverError(f"{sandbox_id} does not run")
        _grow(vm, size_bytes)


def _grow(vm: Vm, size_bytes: int) -> None:
    with vm.monitor("growing the disk of") as monitor:
        if vm.record.task is not None:
            settle_chain(vm, monitor)
        flatten.settle(vm, monitor)
        wanted = max(size_bytes, vm.machine.disk_bytes)
        if vm.machine.disk_bytes < wanted:
            machine = replace(vm.machine, disk_bytes=wanted)
            vm.write(replace(vm.record, machine=machine), durable=True)
        fault("grow.recorded")
        monitor.run("block_resize",
                    {"node-name": argv.node_name(vm.machine.chain[-1]), "size": wanted})
        fault("grow.resized")
        flatten.begin(vm, monitor)
