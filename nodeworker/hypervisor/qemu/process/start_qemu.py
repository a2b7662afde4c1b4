"""Start QEMU for a VM: open what it needs, start it as its own user, limit it.

1. Take vm.lock, open everything QEMU needs as root, claim nothing. 2. Start QEMU as the slot's own
user inside the slot's namespace; it inherits the descriptors and the lock. 3. Put it into its
cgroup while it still initialises.
"""
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nodeworker.disks import qcow2
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.guest_image import Image
from nodeworker.hypervisor.qemu.process import argv, qmp
from nodeworker.hypervisor.qemu.process.accelerator import device_groups
from nodeworker.hypervisor.qemu.process.argv import DiskLayer, Hardware, Kernel
from nodeworker.hypervisor.qemu.process.cgroup import Limits
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess, spawn
from nodeworker.hypervisor.qemu.records import Task
from nodeworker.hypervisor.qemu.vm import Vm
from nodeworker.network import namespaces
from nodeworker.network.addresses import GUEST_MAC, TAP_NAME, Slot


@dataclass(frozen=True)
class Launched:
    """A started QEMU; `state` is its number or name of the descriptor of the saved state that it is
    to load, if there is one. `monitor` is the connection by which it got its machine, if it was
    started ahead."""

    process: QemuProcess
    state: str | None
    monitor: Monitor | None = None


def start_qemu(vm: Vm, slot: Slot, state: Path | None = None) -> Launched:
    """Start QEMU, stopped; with `state` it waits for `load`. The RAM file must exist in its full
    size."""
    host, machine = vm.host, vm.machine
    image = host.image_for(machine)
    uid = host.settings.vm_uid_base + slot.number
    with ExitStack() as stack:
        def keep(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        lock = keep(vm.rundir.take_vm_lock())
        layers = open_layers(host, machine.chain, keep)
        ram = keep(os.open(vm.rundir.ram, os.O_RDWR | os.O_CLOEXEC))
        os.fchown(ram, uid, uid)
        tap = keep(namespaces.in_namespace(slot.namespace, lambda: namespaces.open_tap(TAP_NAME)))
        listener = stack.enter_context(qmp.listen(vm.rundir.monitor))
        kind = host.tuple_for(machine).machine.partition("/")[0]
        kernel = None
        if argv.needs_kernel(kind, incoming=state is not None):
            kernel = _open_kernel(image, host.kernel_command_line(image), keep)
        incoming = keep(os.open(state, os.O_RDONLY | os.O_CLOEXEC)) if state else None
        hardware = Hardware(
            name=f"{host.settings.net_prefix}/{vm.sandbox_id}", machine=kind,
            accelerator=host.accelerator, cpu=image.cpu, shape=machine.shape, ram_descriptor=ram,
            layers=layers, tap_descriptor=tap, mac=GUEST_MAC, monitor_descriptor=listener.fileno(),
            kernel=kernel, incoming=state is not None,
        )
        descriptors = [lock, ram, tap, listener.fileno(), *(layer.descriptor for layer in layers)]
        booted = (kernel.descriptor, kernel.initrd_descriptor) if kernel else ()
        descriptors += [number for number in (*booted, incoming) if number is not None]
        started = spawn(
            argv.qemu_argv(hardware), uid=uid,
            groups=device_groups(host.accelerator, host.settings.vm_uid_base),
            namespace=slot.namespace, empty=host.empty, descriptors=tuple(descriptors),
            file_most_bytes=qcow2.most_bytes(machine.disk_bytes),
        )
    return Launched(started, None if incoming is None else str(incoming))


def ensure_confined(vm: Vm) -> None:
    """Put the process of the record into its cgroup if it is not there: a worker that died had
    perhaps not done so."""
    assert vm.record.pid is not None
    _join(vm, vm.record.pid)


def confine(vm: Vm, started: QemuProcess) -> None:
    """Put a started QEMU into a cgroup with the limits of its shape, a new one: the CPU time of a
    process that ended by itself is not this one's."""
    vm.host.cgroups.remove(vm.sandbox_id)
    _join(vm, started.pid)


def _join(vm: Vm, pid: int) -> None:
    is_spare = vm.record.task is Task.SPARE  # for which nobody waits
    vm.host.cgroups.create(vm.sandbox_id, Limits.of(vm.machine.shape, gives_way=is_spare))
    vm.host.cgroups.join(vm.sandbox_id, pid)


def open_layers(host: Host, chain: tuple[str, ...], keep: Callable[[int], int], *,
                writes: bool = True) -> tuple[DiskLayer, ...]:
    """The layers of `chain` for a QEMU that `writes` to the top one; `keep` gets each open file."""
    layers = []
    for number, reference in enumerate(chain):
        is_top = number == len(chain) - 1
        descriptor = keep(host.layers.open(reference, writable=writes and is_top))
        layers.append(
            DiskLayer("raw" if number == 0 else "qcow2", argv.node_name(reference), descriptor))
    return tuple(layers)


def _open_kernel(image: Image, command_line: str, keep: Callable[[int], int]) -> Kernel:
    """QEMU opens these again by their descriptors, as its own user, so the files must let everyone
    read."""
    descriptors = []
    for path in (image.kernel, image.initrd):
        if path is not None:
            descriptor = keep(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            if os.fstat(descriptor).st_mode & 0o004 == 0:
                os.fchmod(descriptor, 0o444)
            descriptors.append(descriptor)
    return Kernel(descriptors[0], command_line, descriptors[1] if len(descriptors) > 1 else None)
