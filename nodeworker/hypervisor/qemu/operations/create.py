"""Start a new sandbox: a clone of a baked template or of a snapshot, or a cold boot where neither
fits this host.

1. Whatever an earlier attempt left is removed; a sandbox that runs already is returned as it is. 2.
A new overlay on the source's frozen disk; the record names it, so nothing is ever nameless. 3. QEMU
starts while the source's RAM is copied; then as every restore, with a new identity for the guest.
"""
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.disks.durable import read_json, remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, LaunchSpec, RunningVm, VmNotFound, VmState
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.launch import LoadFailed
from nodeworker.hypervisor.qemu.process.start import Start, cold_boot, make_ram, restore, stop
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A saved machine to clone: `directory` holds ram, state and token; `unfit` says why its memory
    cannot be used."""

    machine: Machine
    tokens: tuple[str, ...]
    directory: Path | None = None
    unfit: str = ""


def create(host: Host, spec: LaunchSpec) -> RunningVm:
    """See Driver.create."""
    rundir = host.rundir(spec.sandbox_id)
    with rundir.operation(create=True):
        record = rundir.find_record()
        if record is not None and rundir.inspect() is VmState.RUNNING and record.slot is not None:
            return RunningVm(spec.sandbox_id, host.network.slots.slot(record.slot).address)
        try:
            clear(host, rundir)
            return _start(host, rundir, spec)
        except Exception:
            stop(host, rundir, rundir.find_record())
            remove_tree(rundir.path, host.trash)
            host.collect_layers()
            raise


def clear(host: Host, rundir: RunDir) -> None:
    """Remove all there is of an earlier attempt, except the directory and the lock that is held."""
    stop(host, rundir, rundir.find_record())
    rundir.remove_files()
    host.collect_layers()


def take_references(host: Host, rundir: RunDir, spec: LaunchSpec) -> tuple[Source, SandboxRecord]:
    """Record a new sandbox on the disk layers of what it is cloned from, with an empty layer of its
    own on top; from now on they stay. Raises VmNotFound if the snapshot is not here."""
    with host.layers.referring():
        source = find_source(host, spec)
        layer = host.layers.new_reference()
        machine = replace(source.machine, shape=spec.shape, chain=(*source.machine.chain, layer),
                          made_on=host.tuple_for(source.machine))
        record = rundir.write(
            SandboxRecord(sandbox_id=spec.sandbox_id, machine=machine, phase=Phase.RUNNING,
                          task=Task.CREATE, boot_id=boot_id(), agent_port=spec.agent_port,
                          forwards=spec.forwards), durable=False)
        host.layers.create(layer, machine.disk_bytes)
    return source, record


def _start(host: Host, rundir: RunDir, spec: LaunchSpec) -> RunningVm:
    source, record = take_references(host, rundir, spec)
    fault("create.recorded")
    rundir.write_tokens(*source.tokens, spec.agent_token)
    reason = source.unfit
    if source.directory is not None and not reason:
        try:
            record = _clone(host, rundir, spec, record, source.directory)
        except LoadFailed as error:
            reason = str(error)
    if reason:
        _log.warning("sandbox %s boots cold: %s", spec.sandbox_id, reason)
        record = cold_boot(host, rundir, Start(spec, record, renew=True))
    assert record.slot is not None
    return RunningVm(spec.sandbox_id,
                     host.network.slots.slot(record.slot).address, bool(reason), reason)


def _clone(host: Host, rundir: RunDir, spec: LaunchSpec, record: SandboxRecord,
           directory: Path) -> SandboxRecord:
    fill_ram = None if host.spares.take(directory, rundir.ram) else partial(
        _fill_ram, directory / "ram", rundir.ram)
    if fill_ram is not None:
        make_ram(rundir.ram, spec.shape.mem_mb)
    return restore(host, rundir,
                   Start(spec, record, renew=True, state=directory / "state", fill_ram=fill_ram))


def _fill_ram(source: Path, target: Path) -> None:
    with source.open("rb") as saved, target.open("r+b") as ram:
        sparse.clone(saved.fileno(), ram.fileno())


def find_source(host: Host, spec: LaunchSpec) -> Source:
    """What to clone for `spec`. Raises VmNotFound if it names a snapshot that is not here."""
    if spec.snapshot_id is None:
        machine, directory = host.find_template(spec.shape), host.template_dir(spec.shape)
        if machine is None:
            blank = host.blank_machine(spec.shape)
            return Source(blank, (host.image.agent_token,), unfit="this shape is not baked yet")
    else:
        directory = host.snapshots / spec.snapshot_id
        record = read_json(directory / "snapshot.json")
        if record is None:
            raise VmNotFound(f"no snapshot {spec.snapshot_id} on this host")
        machine = Machine.from_json(record["machine"])
    token = read_json(directory / "token")
    if token is None:
        raise DriverError(f"{directory} has no agent token")
    tokens = (token["token"], host.image_for(machine).agent_token)
    return Source(machine, tokens, directory, mismatch(machine, host.tuple_for(machine), spec))


def mismatch(machine: Machine, here: object, spec: LaunchSpec) -> str:
    """Why the memory of `machine` does not fit what is asked for here; empty if it does."""
    if machine.shape != spec.shape:
        return f"its memory is of shape {machine.shape}, asked for is {spec.shape}"
    if machine.made_on != here:
        return f"its memory was made on {machine.made_on}, this host is {here}"
    return ""
