"""Boot a guest from its disk, for create and wake where no saved memory fits, and look after starts
whose guest is silent yet."""
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, MachineSpec
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.guest.adoption import BadBoot
from nodeworker.hypervisor.qemu.guest.first_answer import BOOT_LIMITS_S, await_answer, began
from nodeworker.hypervisor.qemu.images.lent_memory import hand_over
from nodeworker.hypervisor.qemu.operations.recover import recover
from nodeworker.hypervisor.qemu.process.start_in_slot import started, stop
from nodeworker.hypervisor.qemu.process.start_qemu import ensure_confined
from nodeworker.hypervisor.qemu.records import Phase, Starting
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)


def cold_boot(vm: Vm, spec: MachineSpec, reason: str, *, renew: bool) -> None:
    """Boot the guest from its disk with empty RAM; `reason` says why, `renew` gives it a new
    identity. Raises StillStarting as a rule: a boot takes seconds."""
    _log.warning("sandbox %s boots cold: %s", spec.sandbox_id, reason)
    _boot(vm, spec, began(cold_reason=reason), renew=renew)


def go_on_starting(vm: Vm, spec: MachineSpec, *, renew: bool) -> str:
    """Look again after a guest that had not answered; afterwards it answers and the start is over.
    Returns why it was booted from its disk, or an empty text.

    A cold boot that hung is begun again. Raises what `await_answer` raises: BadBoot for a restore,
    or for the last try of a cold boot.
    """
    starting = vm.record.starting
    assert starting is not None
    try:
        if not vm.rundir.is_alive():
            raise BadBoot(f"{vm.sandbox_id} ended before its guest answered")
        # the worker that started it may have died before it let the guest go
        ensure_confined(vm)
        vm.host.network.forward(vm.slot, vm.record.host_ports(), fresh=False)
        hand_over(vm.host, spec)
        recover(vm)
        await_answer(vm, spec, renew=renew)
        vm.write(replace(vm.record, task=None, starting=None), durable=True)
    except BadBoot as error:
        _log_console(vm)
        if not starting.cold_reason or starting.tries + 1 == len(BOOT_LIMITS_S):
            raise
        _log.warning("booting %s again: %s", vm.sandbox_id, error)
        stop(vm)
        # else who comes after a death in there would go on with a guest that has not begun
        vm.write(replace(vm.record, starting=None, pid=None, start_ticks=None, slot=None),
                 durable=False)
        _boot(vm, spec, began(starting.tries + 1, starting.cold_reason), renew=renew)
    return starting.cold_reason


def _log_console(vm: Vm) -> None:
    with contextlib.suppress(DriverError), vm.monitor("reading the console of") as monitor:
        _log.error("the console of %s ends: %s", vm.sandbox_id, monitor.console()[-2000:])


def _boot(vm: Vm, spec: MachineSpec, starting: Starting, *, renew: bool) -> None:
    vm.rundir.state.unlink(missing_ok=True)
    vm.rundir.make_ram(vm.machine.shape.mem_mb)
    ram_room.reserve(vm)
    if vm.host.layers.renew_lost(vm.machine.chain, vm.machine.disk_bytes):
        _log.error("what %s wrote since it was made was never flushed, and lost with the power of"
                   " this host", vm.sandbox_id)
    # What it saves later is of the host of now; a try before may have been another worker's.
    machine = replace(vm.machine, made_on=vm.host.tuple_for(vm.machine))
    vm.write(replace(vm.record, machine=machine), durable=False)
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            fault("boot.spawned")
            with vm.monitor("booting", begun.launched.process) as monitor:
                vm.write(replace(vm.record, phase=Phase.RUNNING, starting=starting), durable=False)
                begun.go(monitor)
            await_answer(vm, spec, renew=renew)
            begun.wait_reachable()
            vm.write(replace(vm.record, task=None, starting=None), durable=True)
