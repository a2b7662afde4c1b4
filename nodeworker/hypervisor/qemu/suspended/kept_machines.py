"""Machines whose sandbox sleeps and whose process is kept, suspended: a wake needs neither a
new process nor the guest's code translated again.

1. Everything that a wake without the process needs is on disk before it is kept, so one that is
lost costs nothing but time; after a power failure there is none. 2. While it is kept nobody can
reach it: no port leads to it, and it counts neither as running nor as a CPU. 3. It is given up when
it has been kept for long, when there are too many (the eldest first), when the host is short of
memory or slots, and before anything but a wake touches the sandbox.
"""
import logging
import time
from contextlib import suppress
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import DriverError, MachineSpec, StillStarting, VmBusy, VmNotFound
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.suspended.resume_suspended import go_on
from nodeworker.hypervisor.qemu.vm import Vm, locked_vm

_log = logging.getLogger(__name__)


def may_keep(host: Host) -> bool:
    """True if this host keeps processes, and has memory to do so now."""
    return host.settings.kept_machines > 0 and not host_memory.is_short()


def keep(vm: Vm) -> None:
    """Leave the suspended process of a sandbox that has just been saved alive, reachable by
    nobody."""
    vm.host.network.close(vm.sandbox_id)
    vm.write(replace(vm.record, kept_since_s=time.monotonic()), durable=False)
    fault("hibernate.ended")


def resume(vm: Vm, spec: MachineSpec) -> bool:
    """Let the guest go on in the kept process, which the record names. False, and no process, if
    that is of no use: memory and device state on disk are whole.

    Raises DriverError if the guest does not answer (StillStarting: yet); its memory is consumed
    then.
    """
    try:
        go_on(vm, spec, renew=False)
    except StillStarting:
        raise
    except Exception as error:
        if vm.record.phase is Phase.RUNNING:
            raise
        ram_room.reserve(vm)
        _log.warning("the kept process of %s is of no use: %s", vm.sandbox_id, error)
        return False
    return True


def end(vm: Vm) -> None:
    """Give up the process of a saved sandbox."""
    stop(vm)
    vm.write(replace(vm.record, kept_since_s=None, pid=None, start_ticks=None, slot=None),
             durable=False)


def end_surplus(host: Host) -> int:
    """Give up what has been kept for too long, is too many or takes memory that is short; also
    what is left of those that ended by themselves. Returns how many."""
    kept, ended = _list_eldest_first(host), 0
    too_many = max(0, len(kept) - host.settings.kept_machines)
    for number, (since_s, sandbox_id) in enumerate(kept):
        too_old = time.monotonic() - since_s > host.settings.kept_s
        if too_old or number < too_many or host_memory.is_short():
            ended += _end_if_saved(host, sandbox_id)
    return ended


def count(host: Host) -> int:
    """How many there are."""
    return len(_list_eldest_first(host))


def end_eldest(host: Host) -> bool:
    """Give up one, because its slot is needed; False if none is kept."""
    return any(_end_if_saved(host, sandbox_id) for _, sandbox_id in _list_eldest_first(host))


def _list_eldest_first(host: Host) -> list[tuple[float, str]]:
    """Since when (s, monotonic clock), and whose; only what has a slot is looked at. Whose process
    is gone counts as the eldest."""
    found = []
    for sandbox_id in host.network.slots.owners():
        rundir = host.rundir(sandbox_id)
        record = rundir.find_record()
        if record and record.phase is Phase.SAVED and record.kept_since_s is not None:
            found.append((record.kept_since_s if rundir.is_alive() else 0.0, sandbox_id))
    return sorted(found)


def _end_if_saved(host: Host, sandbox_id: str) -> bool:
    with suppress(VmNotFound, VmBusy, DriverError), locked_vm(host, sandbox_id) as vm:
        if vm.record.phase is Phase.SAVED and vm.record.kept_since_s is not None:
            end(vm)
            return True
    return False
