"""Give a prepared QEMU (`prepared_processes.py`) the machine of a sandbox: memory, disk, device
state.

It opens the RAM file by its name in the directory that it is shown, where the file has a name for
that long; everything else it is handed through its monitor. What it was started with in place of a
disk gives way to the sandbox's top layer, as in a snapshot a layer gives way to the one above. Once
it has vm.lock it is the sandbox's process like any other.
"""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import argv, prepared_processes, qmp
from nodeworker.hypervisor.qemu.process.argv import Node
from nodeworker.hypervisor.qemu.process.monitor import IoLimit, Monitor
from nodeworker.hypervisor.qemu.process.prepared_processes import Prepared
from nodeworker.hypervisor.qemu.records import Machine
from nodeworker.hypervisor.qemu.vm import Vm
from nodeworker.network.addresses import Slot

# Names under which QEMU keeps descriptors; one for the saved state is used up when it is loaded.
_LOCK, STATE = "vm.lock", "incoming"
# It has answered before; should it not now, a start with a process of its own takes less long.
_ANSWER_LIMIT_S = 3.0


def hand_slot_over(vm: Vm, waiting: Prepared) -> Slot:
    """Make the process's slot the sandbox's; one that it had is removed."""
    network = vm.host.network
    network.prepare()
    network.slots.release(vm.sandbox_id)
    network.slots.hand_over(waiting.rundir.sandbox_id, vm.sandbox_id)
    fault("prepared.handed_over")
    return network.slots.slot(waiting.slot)


def assemble(vm: Vm, waiting: Prepared, state: Path, monitor: Monitor) -> None:
    """Make the process that `monitor` leads to the one of `vm`, stopped, that can load `state` from
    the descriptor named `STATE`. It may have been given the machine before. Raises QmpError,
    OSError, VmBusy, DriverError: then it is of no use."""
    with _closing(vm.rundir.take_vm_lock()) as lock:
        if waiting.monitor is None:
            with _closing(os.open(vm.rundir.ram, os.O_RDWR | os.O_CLOEXEC)) as ram:
                make_machine(vm.host, waiting, monitor, below_top(vm.machine), ram)
        _put_disk_in(vm, monitor)
        fault("prepared.assembled")
        monitor.run("getfd", {"fdname": _LOCK}, lock)
        fault("prepared.locked")
        with _closing(os.open(state, os.O_RDONLY | os.O_CLOEXEC)) as saved:
            monitor.run("getfd", {"fdname": STATE}, saved)
    monitor.deadline_s = qmp.DEADLINE_S
    os.rename(waiting.rundir.monitor, vm.rundir.monitor)
    prepared_processes.forget(vm.host, waiting.rundir)


def connect(waiting: Prepared) -> Monitor:
    """A connection to the monitor of a process that waits; raises DriverError."""
    return Monitor.of(waiting.rundir, deadline_s=_ANSWER_LIMIT_S)


def below_top(machine: Machine) -> Machine:
    """The machine without the layer that its guest writes to."""
    return replace(machine, chain=machine.chain[:-1])


def make_machine(host: Host, waiting: Prepared, monitor: Monitor, frozen: Machine,
                 ram: int) -> None:
    """Give the process the machine that it shall be of, but for the top layer of its disk: memory,
    which is the file open as `ram`, and the layers of `frozen`, as fast as a guest may use them.
    Raises what `assemble` raises."""
    uid = host.settings.vm_uid_base + waiting.slot
    with _shown(ram, waiting, uid) as path:
        monitor.run("object-add", {"qom-type": "memory-backend-file", "id": argv.RAM,
                                   "share": True, "mem-path": str(path),
                                   "size": frozen.shape.mem_mb * 1024 * 1024})
        monitor.run("qom-set", {"path": "/machine", "property": "memory-backend",
                                "value": f"/objects/{argv.RAM}"})
        monitor.run("x-exit-preconfig")
    base = len(frozen.base)
    below: Node | str = argv.node_name(frozen.base[-1])
    for number, reference in enumerate(frozen.chain[base:], base):
        below = _pass_layer(host, monitor, number, reference, below=below)
    if isinstance(below, dict):  # all of them by one command
        monitor.run("blockdev-add", below)
    monitor.limit_io(IoLimit.of(host.settings))


@contextmanager
def _shown(ram: int, waiting: Prepared, uid: int) -> Iterator[Path]:
    """A name by which the process can open the file that is open as `ram`, in the block."""
    name = waiting.shown / argv.RAM
    # Only where it is given a directory, which it does not need here, does Python follow this link.
    os.link(f"/proc/self/fd/{ram}", name, src_dir_fd=ram)
    try:
        os.fchown(ram, uid, uid)
        yield Path(argv.SHOWN_AT) / name.name
    finally:
        name.unlink()


def _put_disk_in(vm: Vm, monitor: Monitor) -> None:
    """Open the top layer, and put it in place of what stands for the disk."""
    *frozen, top = vm.machine.chain
    name = argv.node_name(top)
    node = _pass_layer(vm.host, monitor, len(frozen), top, below=None, writable=True)
    monitor.run("blockdev-add", node)
    monitor.run("blockdev-snapshot", {"node": argv.NO_DISK, "overlay": name})
    monitor.run("blockdev-reopen", {"options": [
        {**node, "file": argv.file_name(name), "backing": argv.node_name(frozen[-1])}]})
    monitor.run("blockdev-del", {"node-name": argv.NO_DISK})


def _pass_layer(host: Host, monitor: Monitor, number: int, reference: str, *,
                below: Node | str | None, writable: bool = False) -> Node:
    """Pass the file of a layer as descriptor set `number`; returns its node, which is to be
    added."""
    with _closing(host.layers.open(reference, writable=writable)) as descriptor:
        monitor.run("add-fd", {"fdset-id": number}, descriptor)
    return argv.layer_node("qcow2", argv.node_name(reference), number, below=below,
                           writable=writable)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
