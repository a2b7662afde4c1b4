"""Start one QEMU for a machine in a run directory, and talk to it: stop, save, load, continue.

1. Take vm.lock, open everything QEMU needs as root, claim nothing. 2. Start QEMU as the slot's own
user inside the slot's namespace; it inherits the descriptors and the lock. 3. Put it into its
cgroup while it still initialises; connect to the monitor.
"""
import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.image import Image
from nodeworker.hypervisor.qemu.process import argv, qmp
from nodeworker.hypervisor.qemu.process import spawn as process
from nodeworker.hypervisor.qemu.process.accelerator import TCG, device_groups
from nodeworker.hypervisor.qemu.process.argv import DiskLayer, Hardware, Kernel
from nodeworker.hypervisor.qemu.process.cgroup import Limits
from nodeworker.hypervisor.qemu.process.spawn import QemuProcess
from nodeworker.hypervisor.qemu.records import Machine
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.network import namespaces
from nodeworker.network.addresses import GUEST_MAC, TAP_NAME, Slot

_log = logging.getLogger(__name__)
_MIGRATION_LIMIT_S = 120.0


class LoadFailed(DriverError):
    """QEMU could not load a saved state; the RAM file is as it was."""


@dataclass(frozen=True)
class Launched:
    """A started QEMU; `state_descriptor` is its number of the inherited saved state, if there is
    one."""

    process: QemuProcess
    state_descriptor: int | None


def launch(host: Host, rundir: RunDir, machine: Machine, slot: Slot,
           state: Path | None = None) -> Launched:
    """Start QEMU, stopped; with `state` it waits for `load`. The RAM file must exist in its full
    size."""
    image = host.image_for(machine)
    uid = host.settings.vm_uid_base + slot.number
    with ExitStack() as stack:
        def keep(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        lock = keep(rundir.take_vm_lock())
        layers = _open_layers(host, machine.chain, keep)
        ram = keep(os.open(rundir.ram, os.O_RDWR | os.O_CLOEXEC))
        os.fchown(ram, uid, uid)
        tap = keep(namespaces.in_namespace(slot.namespace, lambda: namespaces.open_tap(TAP_NAME)))
        listener = stack.enter_context(qmp.listen(rundir.monitor))
        kernel = _open_kernel(image, kernel_command_line(host, image), keep)
        incoming = keep(os.open(state, os.O_RDONLY | os.O_CLOEXEC)) if state else None
        hardware = Hardware(
            name=f"{host.settings.net_prefix}/{rundir.sandbox_id}",
            machine=host.tuple_for(machine).machine.partition("/")[0], accelerator=host.accelerator,
            cpu=image.cpu, shape=machine.shape, ram_descriptor=ram, layers=layers,
            tap_descriptor=tap, mac=GUEST_MAC, monitor_descriptor=listener.fileno(), kernel=kernel,
            incoming=state is not None,
        )
        descriptors = [
            lock, ram, tap,
            listener.fileno(), kernel.descriptor, *(layer.descriptor for layer in layers)
        ]
        descriptors += [
            number for number in (kernel.initrd_descriptor, incoming) if number is not None
        ]
        started = process.spawn(
            argv.qemu_argv(hardware), uid=uid,
            groups=device_groups(host.accelerator, host.settings.vm_uid_base),
            namespace=slot.namespace, descriptors=tuple(descriptors),
        )
    return Launched(started, incoming)


def confine(host: Host, rundir: RunDir, machine: Machine, started: QemuProcess) -> None:
    """Put a started QEMU into a cgroup with the limits of its shape, a new one: the CPU time of a
    process that ended by itself is not this one's."""
    host.cgroups.remove(rundir.sandbox_id)
    host.cgroups.create(rundir.sandbox_id, Limits.of(machine.shape))
    host.cgroups.join(rundir.sandbox_id, started.pid)


def _open_layers(host: Host, chain: tuple[str, ...], keep: Any) -> tuple[DiskLayer, ...]:
    layers = []
    for number, reference in enumerate(chain):
        mode = os.O_RDWR if number == len(chain) - 1 else os.O_RDONLY
        descriptor = keep(os.open(host.layers.path(reference), mode | os.O_CLOEXEC))
        layers.append(
            DiskLayer("raw" if number == 0 else "qcow2", argv.node_name(reference), descriptor))
    return tuple(layers)


def kernel_command_line(host: Host, image: Image) -> str:
    """The image's, plus the counter's rate where the guest could only guess it (see
    `timestamp`)."""
    known_rate = f" tsc_early_khz={host.counter_khz}" if host.accelerator == TCG else ""
    return image.command_line + known_rate


def _open_kernel(image: Image, command_line: str, keep: Any) -> Kernel:
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


class Monitor(qmp.QmpClient):
    """The monitor of a sandbox's QEMU, with the few things the driver asks of it."""

    @classmethod
    def of(cls, rundir: RunDir, started: QemuProcess | None = None) -> "Monitor":
        """Connect; a QEMU that ended at start is reported with its own words."""
        try:
            return cls(rundir.monitor)
        except qmp.QmpError as error:
            words = started.last_words() if started else ""
            raise DriverError(f"QEMU of {rundir.sandbox_id}: {error}. {words}".strip()) from error

    def load(self, state_descriptor: int) -> None:
        """Load the device state QEMU inherited as `state_descriptor`. Raises LoadFailed."""
        try:
            self._leave_ram_out()
            self.run("migrate-incoming", {"uri": f"fd:{state_descriptor}"})
            status = self._migration_end()
        except qmp.QmpError as error:
            raise LoadFailed(f"loading the saved state: {error}") from error
        if status != "completed":
            raise LoadFailed(f"loading the saved state ended as {status}")

    def save(self, path: Path) -> None:
        """Write the device state of the stopped guest to the new file `path`; RAM is not in it,
        being a file already."""
        self.events.clear()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._leave_ram_out()
            self.run("getfd", {"fdname": "state"}, descriptor)
            self.run("migrate", {"uri": "fd:state"})
            status = self._migration_end()
        finally:
            os.close(descriptor)
        if status != "completed":
            raise DriverError(f"saving the device state ended as {status}")

    def _leave_ram_out(self) -> None:
        """RAM shared with a file is not part of a saved state; the end of a migration is told by an
        event."""
        capabilities = [{"capability": name, "state": True}
                        for name in ("x-ignore-shared", "events")]
        self.run("migrate-set-capabilities", {"capabilities": capabilities})

    def _migration_end(self) -> str:
        def ended(event: dict[str, Any]) -> bool:
            return event["event"] == "MIGRATION" and event["data"]["status"] in {
                "completed", "failed", "cancelled"
            }

        return str(self.wait_event(ended, _MIGRATION_LIMIT_S)["data"]["status"])

    def active_node(self) -> str:
        """Name of the disk node the guest's disk writes to."""
        return str(self.run("query-block")[0]["inserted"]["node-name"])

    def depth_below_active(self) -> int:
        """How many layers lie under the one the guest's disk writes to."""
        return int(self.run("query-block")[0]["inserted"]["backing_file_depth"])

    def console(self) -> str:
        """The last of what the guest wrote to its console."""
        try:
            return str(self.run("ringbuf-read", {"device": "console", "size": argv.CONSOLE_BYTES}))
        except qmp.QmpError:
            return ""
