"""Boot a guest from its disk, for create and wake where no saved memory fits."""
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeworker.hypervisor.driver import LaunchSpec
from nodeworker.hypervisor.qemu.operations.first_answer import await_answer, began, go_on
from nodeworker.hypervisor.qemu.process.start_stop import started
from nodeworker.hypervisor.qemu.records import Phase, Starting
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)


def cold_boot(vm: Vm, spec: LaunchSpec, reason: str, *, renew: bool) -> None:
    """Boot the guest from its disk with empty RAM; `reason` says why, `renew` gives it a new
    identity. Raises StillStarting as a rule: a boot takes seconds."""
    _log.warning("sandbox %s boots cold: %s", spec.sandbox_id, reason)
    _boot(vm, spec, began(cold_reason=reason), renew=renew)


def go_on_starting(vm: Vm, spec: LaunchSpec, *, renew: bool) -> str:
    """Look after a start that was left with a silent guest, see `first_answer.go_on`; afterwards
    the guest answers and the start is over."""
    reason = go_on(vm, spec, renew=renew,
                   boot_again=lambda starting: _boot(vm, spec, starting, renew=renew))
    vm.write(replace(vm.record, task=None, starting=None), durable=True)
    return reason


def _boot(vm: Vm, spec: LaunchSpec, starting: Starting, *, renew: bool) -> None:
    vm.rundir.state.unlink(missing_ok=True)
    vm.rundir.make_ram(vm.machine.shape.mem_mb)
    vm.rundir.reserve_ram()
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            with vm.monitor("booting", begun.launched.process) as monitor:
                vm.write(replace(vm.record, phase=Phase.RUNNING, starting=starting), durable=False)
                begun.go(monitor)
            await_answer(vm, spec, renew=renew)
            vm.write(replace(vm.record, task=None, starting=None), durable=True)
