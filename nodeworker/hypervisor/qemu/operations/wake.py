"""Wake a sandbox: let its kept process go on, restore its saved state, or boot it cold from its
disk where there is none that fits.

The saved state is consumed by one write (phase RUNNING), made when everything is loaded and the
guest has not moved yet. Before it, a failure or a crash leaves the sandbox saved, unless QEMU says
that it cannot load the state, or ends while it does in the last try. So does a failure of the host
between that write and the guest's first move, which takes it back; after that, RAM without its
process is worth nothing and the next try boots from disk.
"""
import logging
from dataclasses import replace
from functools import partial

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, MachineSpec, RunningVm, StillStarting
from nodeworker.hypervisor.qemu.disk import flatten, ram_room
from nodeworker.hypervisor.qemu.guest.first_answer import began
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.cold_boot import cold_boot, go_on_starting
from nodeworker.hypervisor.qemu.process.monitor import LoadFailed
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.restoring.restore import restore
from nodeworker.hypervisor.qemu.rundir import boot_id, ram_is_whole
from nodeworker.hypervisor.qemu.suspended import kept_machines
from nodeworker.hypervisor.qemu.vm import Vm, created_vm

_log = logging.getLogger(__name__)


def wake(host: Host, spec: MachineSpec) -> RunningVm:
    """See Driver.wake."""
    with created_vm(host, spec.sandbox_id) as vm:
        cold_reason = _wake(vm, spec)
        flatten.begin_after_start(vm)
        return vm.answer(cold_reason)


def _wake(vm: Vm, spec: MachineSpec) -> str:
    """Why it had to be booted from its disk; empty if it was restored or ran already."""
    if vm.is_starting:
        return _go_on(vm, spec)
    if vm.rundir.is_alive():
        # With this task and no start noted a cold boot has died before its guest moved.
        if vm.record.phase is Phase.RUNNING and vm.record.task is not Task.WAKE:
            return _keep_running(vm, spec)
        if not vm.is_kept:
            stop(vm)
    _note_tokens(vm, spec)
    reason = "no saved memory: its process ended without being hibernated"
    if ram_is_whole(vm.record):
        try:
            _restore(vm, spec)
            return ""
        except LoadFailed as error:
            reason = str(error)
    _boot(vm, spec, reason)
    return reason


def _note_tokens(vm: Vm, spec: MachineSpec) -> None:
    vm.rundir.add_tokens(spec.agent_token, vm.host.image_for(vm.machine).agent_token)


def _restore(vm: Vm, spec: MachineSpec) -> None:
    """Raises LoadFailed if the memory is of no use, which includes a guest that does not answer
    once restored."""
    has_process = vm.is_kept
    _record_start(vm, spec, phase=Phase.WAKING, task=Task.WAKE, has_process=has_process)
    try:
        fault("wake.begun")
        if not (has_process and kept_machines.resume(vm, spec)):
            _check_host(vm)
            restore(vm, spec, vm.rundir.state, renew=False,
                    prepare_ram=partial(ram_room.reserve, vm))
    except (LoadFailed, StillStarting):
        raise
    except Exception as error:
        if vm.record.phase is Phase.RUNNING:
            raise LoadFailed(f"the restored guest did not answer: {error}") from error
        stop(vm)
        _record_start(vm, spec, phase=Phase.SAVED, task=None)
        raise
    vm.rundir.state.unlink(missing_ok=True)


def _check_host(vm: Vm) -> None:
    """Raises LoadFailed if this host is not what the memory was made on."""
    reason = vm.host.mismatch(vm.machine, vm.machine.shape)
    if reason:
        raise LoadFailed(reason)


def _boot(vm: Vm, spec: MachineSpec, reason: str) -> None:
    _record_start(vm, spec, phase=Phase.RUNNING, task=Task.WAKE)
    cold_boot(vm, spec, reason, renew=False)


def _record_start(vm: Vm, spec: MachineSpec, *, phase: Phase, task: Task | None,
                  has_process: bool = False) -> None:
    """Write the record of a new start with the ports of `spec`, durably; without a process, unless
    it `has_process`, a kept one."""
    record = vm.record if has_process else replace(vm.record, pid=None, start_ticks=None, slot=None)
    vm.write(replace(record, phase=phase, task=task, boot_id=boot_id(), agent_port=spec.agent_port,
                     forwards=spec.forwards, starting=None, kept_since_s=None), durable=True)


def _keep_running(vm: Vm, spec: MachineSpec) -> str:
    """Make a live VM what the spec says, also after an operation that died in the middle."""
    if vm.record.task is not None:
        _note_tokens(vm, spec)
        vm.write(replace(vm.record, agent_port=spec.agent_port, forwards=spec.forwards,
                         starting=began()), durable=False)
        return _go_on(vm, spec)
    vm.write(replace(vm.record, agent_port=spec.agent_port, forwards=spec.forwards), durable=False)
    vm.host.network.forward(vm.slot, vm.record.host_ports(), fresh=False)
    return ""


def forward(host: Host, spec: MachineSpec) -> None:
    """See Driver.forward."""
    with created_vm(host, spec.sandbox_id) as vm:
        running = vm.rundir.is_alive() and vm.record.phase is Phase.RUNNING
        if not running or vm.record.task is not None:
            raise DriverError(f"{spec.sandbox_id} does not run")
        _keep_running(vm, spec)


def _go_on(vm: Vm, spec: MachineSpec) -> str:
    """Look after a guest that has not answered yet. Memory that does not come back to answering is
    given up: it boots from its disk."""
    starting = vm.record.starting
    assert starting is not None
    try:
        cold_reason = go_on_starting(vm, spec, renew=False)
    except StillStarting:
        raise
    except DriverError as error:
        _log.exception("sandbox %s cannot be brought to answering", spec.sandbox_id)
        stop(vm)
        vm.write(replace(vm.record, task=None, starting=None), durable=False)
        if starting.cold_reason:
            raise
        cold_reason = f"the restored guest did not answer: {error}"
        _boot(vm, spec, cold_reason)
    vm.rundir.state.unlink(missing_ok=True)
    return cold_reason
