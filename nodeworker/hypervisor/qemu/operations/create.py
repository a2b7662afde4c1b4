"""Start a new sandbox: a clone of a warm image or of a snapshot, or a cold boot where neither fits
this host.

1. A sandbox that runs already is returned as it is, one whose guest is silent yet is looked after
   again; whatever else an earlier attempt left is removed.
2. Where a spare stands ready, it becomes the sandbox (`suspended/warm_spares.py`).
3. A new overlay on the source's frozen disk; the record names it, so nothing is ever nameless.
4. QEMU starts while the source's RAM is copied, or with a copy made before, or with what a capture
   lends; then as every restore, with a new identity for the guest.
"""
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.disks.durable import read_json, remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import (
    DriverError,
    MachineSpec,
    RunningVm,
    StillStarting,
    VmNotFound,
    VmState,
)
from nodeworker.hypervisor.host_facts import NO_MEMORY
from nodeworker.hypervisor.qemu.disk import flatten, ram_room
from nodeworker.hypervisor.qemu.disk.release_layers import release_layers
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images import lent_memory
from nodeworker.hypervisor.qemu.operations.cold_boot import cold_boot, go_on_starting
from nodeworker.hypervisor.qemu.operations.restore import restore
from nodeworker.hypervisor.qemu.process.monitor import LoadFailed
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, Task, find_warm_image
from nodeworker.hypervisor.qemu.rundir import boot_id
from nodeworker.hypervisor.qemu.suspended import warm_spares
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


class AlreadyCreated(DriverError):
    """The sandbox was completely created once. Whatever has become of it since, its files are not a
    create's to remove: this one comes late, after another worker's."""


def create(host: Host, spec: MachineSpec) -> RunningVm:
    """See Driver.create. Raises AlreadyCreated for one that sleeps or whose process has ended."""
    rundir = host.rundir(spec.sandbox_id)
    with ExitStack() as held:
        held.enter_context(rundir.operation(create=True))
        vm = Vm(host, rundir)
        if rundir.inspect() is VmState.RUNNING:
            return vm.answer()
        if rundir.was_created():
            raise AlreadyCreated(f"{spec.sandbox_id} is here already")
        try:
            if vm.is_starting:
                cold_reason = go_on_starting(vm, spec, renew=True)
            else:
                ram_room.check_create(host, spec.shape.mem_mb)
                _clear(vm)
                cold_reason = _start(vm, spec, held)
            flatten.begin_after_start(vm)
            return vm.answer(cold_reason)
        except StillStarting:
            raise
        except Exception:
            stop(vm)
            chain = rundir.chain()
            remove_tree(rundir.path, host.trash)
            release_layers(host, rundir.path, chain)
            raise


def _clear(vm: Vm) -> None:
    """Remove all there is of an earlier attempt, except the directory and the lock that is held."""
    stop(vm)
    chain = vm.rundir.chain()
    vm.rundir.remove_files()
    release_layers(vm.host, vm.rundir.path, chain)


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


def _start(vm: Vm, spec: MachineSpec, held: ExitStack) -> str:
    """Why it had to be booted from its disk; empty if it was restored from its source, or made of a
    spare."""
    if warm_spares.assign(vm, spec, held):
        return ""
    if vm.rundir.find_record() is not None:
        _clear(vm)
    source = record_new_sandbox(vm, spec)
    fault("create.recorded")
    vm.rundir.write_tokens(*source.tokens, spec.agent_token, durable=False)
    reason = source.unfit
    if source.directory is not None and not reason:
        try:
            clone(vm, spec, source.directory)
        except LoadFailed as error:
            reason = str(error)
    if reason:
        cold_boot(vm, spec, reason, renew=True)
    return reason


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
