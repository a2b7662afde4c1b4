"""Start a new sandbox: a clone of a warm image or of a snapshot, or a cold boot where neither fits
this host.

1. A sandbox that runs already is returned as it is, one whose guest is silent yet is looked after
   again; whatever else an earlier attempt left is removed.
2. Where a spare stands ready, it becomes the sandbox (`suspended/warm_spares.py`).
3. A new overlay on the source's frozen disk; the record names it, so nothing is ever nameless.
4. QEMU starts while the source's RAM is copied, or with a copy made before, or with what a capture
   lends; then as every restore, with a new identity for the guest (`restoring/clone.py`).
"""
from contextlib import ExitStack

from nodeworker.disks.durable import remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, MachineSpec, RunningVm, StillStarting, VmState
from nodeworker.hypervisor.qemu.disk import flatten, ram_room
from nodeworker.hypervisor.qemu.disk.release_layers import release_layers
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.cold_boot import cold_boot, go_on_starting
from nodeworker.hypervisor.qemu.process.monitor import LoadFailed
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.restoring.clone import clone, record_new_sandbox
from nodeworker.hypervisor.qemu.suspended import warm_spares
from nodeworker.hypervisor.qemu.vm import Vm


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
