"""Boot a guest from its disk, for create and wake where no saved memory fits.

A boot under emulation takes 6 to 25 s and now and then loses a timer interrupt and hangs; then it
is started again.
"""
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeworker.hypervisor.driver import LaunchSpec
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.process.start_stop import started
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.vm import Vm

_TRIES_S = (75.0, 120.0, 240.0)
_log = logging.getLogger(__name__)


def cold_boot(vm: Vm, spec: LaunchSpec, *, renew: bool) -> None:
    """Boot the guest from its disk with empty RAM, again if it hangs; `renew` gives it a new
    identity. Raises DriverError when it never comes up."""
    boot_again_if_bad(vm, lambda limit_s: _boot_once(vm, spec, limit_s, renew=renew))


def boot_again_if_bad(vm: Vm, boot: Callable[[float], None],
                      again: Callable[[], None] = lambda: None) -> None:
    """Call `boot` with its time limit in seconds, and again with a longer one after each BadBoot,
    which `again` is told. The last BadBoot is raised."""
    for limit_s in _TRIES_S[:-1]:
        try:
            return boot(limit_s)
        except adoption.BadBoot as error:
            _log.warning("booting %s again: %s", vm.sandbox_id, error)
            again()
    return boot(_TRIES_S[-1])


def _boot_once(vm: Vm, spec: LaunchSpec, limit_s: float, *, renew: bool) -> None:
    vm.rundir.state.unlink(missing_ok=True)
    vm.rundir.make_ram(vm.machine.shape.mem_mb)
    vm.rundir.reserve_ram()
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            with vm.monitor("booting", begun.launched.process) as monitor:
                vm.write(replace(vm.record, phase=Phase.RUNNING), durable=False)
                begun.go(monitor)
                try:
                    adoption.adopt(vm, spec, renew=renew, restored=False, limit_s=limit_s)
                except adoption.BadBoot:
                    _log.error("the console of %s ends: %s", vm.sandbox_id,
                               monitor.console()[-2000:])
                    raise
            vm.write(replace(vm.record, task=None), durable=True)
