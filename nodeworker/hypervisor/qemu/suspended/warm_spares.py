"""Machines restored ahead of need, from a warm image or a snapshot (`spare_sources.py`), which have
run once and stand suspended: a create takes one over instead of starting its own.

1. A spare has a run directory of its own, `<node_dir>/warm/<id>`, as a sandbox has, and an identity
of its own, which it gives up when it is taken. Its record says that it was never completely
created. 2. It is complete once the file `ready` is there; whoever takes it holds its operation lock
and removes that file first, so it is never given twice. One that nobody works on and that is not
ready is left of somebody who died, and removed. 3. It becomes the sandbox's in one step, in which
the two run directories change places. A create that dies afterwards has left a sandbox that was
never completely created. 4. Spares are made while the CPU is idle, as many as have been wanted
lately, and given up when they are too many, when memory, disk or slots are short, or when creates
do not use their source any more. 5. Its guest reaches nobody until it answers to its sandbox's
token. 6. Of the disk it has no more than it has written to, as a sandbox that sleeps; the rest of
its memory is reserved again before its guest goes on.
"""
import ctypes
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import MachineSpec, StillStarting
from nodeworker.hypervisor.qemu.disk.release_layers import release_layers
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.process.start_qemu import ensure_confined
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.hypervisor.qemu.suspended import demand
from nodeworker.hypervisor.qemu.suspended.resume_suspended import go_on
from nodeworker.hypervisor.qemu.suspended.spare_sources import source_for
from nodeworker.hypervisor.qemu.suspended.spare_targets import targets
from nodeworker.hypervisor.qemu.vm import Vm

PREFIX, READY = "spare-", "ready"
_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def assign(vm: Vm, spec: MachineSpec, held: ExitStack) -> bool:
    """Make a new sandbox of a spare that fits `spec`. False if there is none, or it was of no use:
    then the sandbox has nothing but perhaps files that nobody needs.

    With the run directory the lock in it is exchanged: `held` keeps the one that was the spare's.
    Raises DriverError if the guest does not answer (StillStarting: yet).
    """
    host = vm.host
    if host.settings.warm_spares == 0:
        return False
    source = source_for(host, spec)
    if source is None:
        return False
    demand.note(host.warm, source.name)
    spare = held.enter_context(_taken(host, source.name))
    if spare is None:
        return False
    try:
        _become(vm, spec, spare)
        go_on(vm, spec, renew=True)
    except StillStarting:
        raise
    except Exception as error:
        if _has_moved(vm):
            raise
        _log.warning("the spare %s is of no use: %s", spare.sandbox_id, error)
        stop(vm)
        return False
    finally:
        if not spare.find_record():
            _forget(host, spare)
    return True


def _become(vm: Vm, spec: MachineSpec, spare: RunDir) -> None:
    host = vm.host
    fault("spare.taken")
    host.network.slots.hand_over(spare.sandbox_id, vm.sandbox_id)
    fault("spare.handed_over")
    _move_in(vm, spare)
    fault("spare.exchanged")
    record = vm.rundir.find_record()
    assert record is not None
    vm.write(replace(record, sandbox_id=vm.sandbox_id, agent_port=spec.agent_port,
                     forwards=spec.forwards), durable=False)
    fault("create.recorded")
    vm.rundir.write_tokens(*vm.rundir.tokens(), spec.agent_token, durable=False)
    ensure_confined(vm)


def _move_in(vm: Vm, spare: RunDir) -> None:
    """Let the sandbox and its spare change places, and be the one whom the notes name."""
    layers, frozen = vm.host.layers, (spare.chain() or ())[:-1]
    with layers.referring():
        layers.notes.add(frozen, vm.rundir.path)
        _exchange(spare.path, vm.rundir.path)
        for reference in frozen:
            layers.notes.remove(reference, spare.path)


def _forget(host: Host, spare: RunDir) -> None:
    """Remove what is left of a spare that has become a sandbox: the directory that the sandbox had,
    and the cgroup that the process was in."""
    if not host.cgroups.pids(spare.sandbox_id):
        host.cgroups.remove(spare.sandbox_id)
        remove_tree(spare.path, host.trash)


def _has_moved(vm: Vm) -> bool:
    record = vm.rundir.find_record()
    return record is not None and record.starting is not None


def _exchange(one: Path, other: Path) -> None:
    """Let two directories change their names, in one step."""
    if _libc.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"renameat2: {os.strerror(number)}", str(one))


@contextmanager
def _taken(host: Host, source: str) -> Iterator[RunDir | None]:
    """A spare of this source, locked in the block and nobody else's from now on."""
    for rundir in _list(host):
        with rundir.nobody_at_work() as is_ours:
            if is_ours and source_of(rundir) == source:
                (rundir.path / READY).unlink()
                yield rundir
                return
    yield None


def end_surplus(host: Host) -> int:
    """Give up the spares that are not whole, too many, not wanted any more, or take memory or disk
    that is short; returns how many."""
    left, ended = targets(host), 0
    for rundir in _list(host):
        # without its lock: a create that meets that takes another way
        if _is_wanted(host, rundir, left):
            continue
        with rundir.nobody_at_work() as is_ours:
            if is_ours and not _is_wanted(host, rundir, left):
                ended += _give_up(host, rundir)
    return ended


def _is_wanted(host: Host, rundir: RunDir, left: dict[str, int]) -> bool:
    """Whether it is whole and one of those that are still wanted by `left`, which counts it off."""
    source = source_of(rundir)
    if left.get(source, 0) == 0 or host_memory.is_short() or not host.disk_floor.is_left():
        return False
    left[source] -= 1
    return True


def end_one(host: Host) -> bool:
    """Give one up, because its slot is needed; False if there is none."""
    for rundir in _list(host):
        with rundir.nobody_at_work() as is_ours:
            if is_ours and _give_up(host, rundir):
                return True
    return False


def _give_up(host: Host, rundir: RunDir) -> bool:
    """Remove what there is of it; False if it was no machine and held nothing."""
    if rundir.find_record():
        discard(Vm(host, rundir))
        return True
    _forget(host, rundir)
    return False


def discard(vm: Vm) -> None:
    """Remove a spare, or what there is of it. Its operation lock must be held."""
    chain = vm.rundir.chain()
    stop(vm)
    remove_tree(vm.rundir.path, vm.host.trash)
    release_layers(vm.host, vm.rundir.path, chain)


def count_ready(host: Host) -> dict[str, int]:
    """How many spares of each source stand ready."""
    return dict(Counter(filter(None, map(source_of, _list(host)))))


def _list(host: Host) -> list[RunDir]:
    return [RunDir(path) for path in sorted(host.warm.glob(f"{PREFIX}*"))]


def source_of(rundir: RunDir) -> str:
    """The name of what a spare was made of; empty if it is not whole."""
    record = rundir.find_record()
    if record is None or record.boot_id != boot_id() or not rundir.is_alive():
        return ""
    try:
        return (rundir.path / READY).read_text()
    except FileNotFoundError:
        return ""
