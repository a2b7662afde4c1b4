"""Make a new machine of a warm image or of a snapshot: on the same frozen disk, with an overlay of
its own, and with a copy of the memory, or one made before, or what a capture lends."""
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.driver import DriverError, MachineSpec, VmNotFound
from nodeworker.hypervisor.host_facts import NO_MEMORY
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images import lent_memory
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, Task, find_warm_image
from nodeworker.hypervisor.qemu.restoring.restore import restore
from nodeworker.hypervisor.qemu.rundir import boot_id
from nodeworker.hypervisor.qemu.vm import Vm

_DISK_WANTED = "only the disk of its snapshot was asked for"


@dataclass(frozen=True)
class Source:
    """A saved machine to clone: `directory` holds ram, state and token; `unfit` says why its memory
    cannot be used."""

    machine: Machine
    tokens: tuple[str, ...]
    directory: Path | None = None
    unfit: str = ""


def record_new_sandbox(vm: Vm, spec: MachineSpec) -> Source:
    """Record a new sandbox on the disk layers of what it is cloned from, with an empty layer of its
    own on top; from now on they stay. Raises VmNotFound if the snapshot is not here."""
    layers = vm.host.layers
    with layers.referring():
        source = _find_source(vm.host, spec)
        layers.notes.add(source.machine.chain, vm.rundir.path)
        if spec.snapshot_id is not None:
            # it may be older than notes are
            layers.notes.add(source.machine.chain, vm.host.snapshots / spec.snapshot_id)
        layer = layers.new_reference()
        machine = replace(source.machine, shape=spec.shape, chain=(*source.machine.chain, layer),
                          made_on=vm.host.tuple_for(source.machine))
        vm.write(
            SandboxRecord(sandbox_id=spec.sandbox_id, machine=machine, phase=Phase.RUNNING,
                          task=Task.CREATE, boot_id=boot_id(), agent_port=spec.agent_port,
                          forwards=spec.forwards), durable=False)
        layers.create(layer, machine.disk_bytes)
    return source


def clone(vm: Vm, spec: MachineSpec, directory: Path) -> None:
    """Restore the machine that is saved in `directory`, with a new identity. Raises what `restore`
    raises."""
    prepare_ram = partial(ram_room.reserve, vm)
    taken = (
        vm.host.spares.take(directory, vm.rundir.ram)
        if spec.snapshot_id is None else lent_memory.borrow(vm, spec)
    )
    if not taken:
        prepare_ram = partial(_fill_ram, directory / "ram", vm)
        vm.rundir.make_ram(spec.shape.mem_mb)
    restore(vm, spec, directory / "state", renew=True, prepare_ram=prepare_ram)


def _fill_ram(source: Path, vm: Vm) -> None:
    with source.open("rb") as saved, vm.rundir.ram.open("r+b") as ram:
        sparse.clone(saved.fileno(), ram.fileno())
    ram_room.reserve(vm)


def _find_source(host: Host, spec: MachineSpec) -> Source:
    """What to clone for `spec`. Raises VmNotFound if it names a snapshot that is not here."""
    if spec.snapshot_id is None:
        directory = host.warm_image_dir(spec.shape, presets=spec.presets)
        machine, unfit = find_warm_image(directory), ""
        if machine is None:
            blank = host.blank_machine(spec.shape, presets=spec.presets)
            token = host.image_for(blank).agent_token
            return Source(blank, (token,), unfit="this shape is not baked yet")
    else:
        directory = host.snapshots / spec.snapshot_id
        snapshot = host.find_snapshot(spec.snapshot_id)
        if snapshot is None:
            raise VmNotFound(f"no snapshot {spec.snapshot_id} on this host")
        machine = snapshot.machine
        if spec.from_disk or not snapshot.has_memory:
            return Source(machine, _tokens(host, directory, machine),
                          unfit=_DISK_WANTED if spec.from_disk else NO_MEMORY)
        unfit = lent_memory.find_loss(host, snapshot)
    return Source(machine, _tokens(host, directory, machine), directory,
                  unfit or host.mismatch(machine, spec.shape))


def _tokens(host: Host, directory: Path, machine: Machine) -> tuple[str, ...]:
    """What the guest of a clone may be asking for: the token of its memory, or after a cold boot
    the image's."""
    token = read_json(directory / "token")
    if token is None:
        raise DriverError(f"{directory} has no agent token")
    return token["token"], host.image_for(machine).agent_token
