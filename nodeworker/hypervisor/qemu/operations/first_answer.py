"""Wait for the first answer of a guest that was started, without keeping a worker for it.

1. Right after the start the guest gets a moment, which is all that a restore needs. 2. One that is
silent for longer goes on starting: `StillStarting` tells the caller when to look again. 3. `go_on`
looks again, each time for a little longer. 4. A guest that has had its time is a BadBoot: a cold
boot that hangs is begun again, with more time (under emulation one takes 6 to 25 s, and now and
then loses a timer interrupt).
"""
import contextlib
import logging
import time
from collections.abc import Callable

from nodeworker.hypervisor.driver import DriverError, LaunchSpec, StillStarting
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.operations.recover import recover
from nodeworker.hypervisor.qemu.process.launch import ensure_confined
from nodeworker.hypervisor.qemu.process.start_stop import stop
from nodeworker.hypervisor.qemu.records import Phase, Starting
from nodeworker.hypervisor.qemu.vm import Vm

# A restored guest that is only slow must not be taken for a dead one: its memory would be given up.
RESTORE_LIMIT_S = 60.0
# What a cold boot gets (s), at the first try and at those after a boot that hung.
BOOT_LIMITS_S = (75.0, 120.0, 240.0)
# How long a worker listens for a restored guest, a booting one, and how much longer (as a share of
# the time since the start) when it comes back. A guest may be slow because its host is, so it must
# get longer in the end than its answer takes.
_RESTORED_MOMENT_S, _BOOTING_MOMENT_S = 3.0, 1.0
_LONGER, _LONGEST_MOMENT_S = 0.25, 8.0
_PAUSE_S = 1.0
_log = logging.getLogger(__name__)


def began(tries: int = 0, cold_reason: str = "") -> Starting:
    """A start that begins now."""
    return Starting(time.monotonic(), tries, cold_reason)


def await_answer(vm: Vm, spec: LaunchSpec, *, renew: bool) -> None:
    """Give the guest of a running start its identity if it answers now; afterwards the record says
    that the start is over. `renew` gives it a new identity.

    Raises StillStarting, BadBoot if it has had its time or its process has ended, DriverError if it
    refuses.
    """
    starting = vm.record.starting
    assert starting is not None
    cold = bool(starting.cold_reason)
    waited_s = time.monotonic() - starting.since_s
    shortest_s = _BOOTING_MOMENT_S if cold else _RESTORED_MOMENT_S
    moment_s = min(max(shortest_s, waited_s * _LONGER), _LONGEST_MOMENT_S)
    try:
        adoption.adopt(vm, spec, renew=renew, restored=not cold, limit_s=moment_s)
    except adoption.BadBoot as error:
        waited_s = time.monotonic() - starting.since_s
        if waited_s < _limit_s(starting) and vm.rundir.is_alive():
            raise StillStarting(str(error), _PAUSE_S) from error
        raise


def _limit_s(starting: Starting) -> float:
    return BOOT_LIMITS_S[starting.tries] if starting.cold_reason else RESTORE_LIMIT_S


def go_on(vm: Vm, spec: LaunchSpec, *, renew: bool,
          boot_again: Callable[[Starting], None]) -> str:
    """Look again after a guest that had not answered; returns why it was booted from its disk, or
    an empty text.

    `boot_again` starts a cold boot that hung once more. Raises what `await_answer` raises: BadBoot
    for a restore, or for the last try of a cold boot.
    """
    starting = vm.record.starting
    assert starting is not None
    try:
        if not vm.rundir.is_alive():
            raise adoption.BadBoot(f"{vm.sandbox_id} ended before its guest answered")
        # the worker that started it may have died before it let the guest go
        ensure_confined(vm)
        vm.host.network.forward(vm.slot, vm.record.host_ports(), fresh=False)
        recover(vm)
        await_answer(vm, spec, renew=renew)
    except adoption.BadBoot as error:
        _log_console(vm)
        if not starting.cold_reason or starting.tries + 1 == len(BOOT_LIMITS_S):
            raise
        _log.warning("booting %s again: %s", vm.sandbox_id, error)
        stop(vm)
        boot_again(began(starting.tries + 1, starting.cold_reason))
    return starting.cold_reason


def is_starting(vm: Vm) -> bool:
    """True if a start of this sandbox has not come to its end: its guest has not answered yet."""
    record = vm.rundir.find_record()
    return (record is not None and record.phase is Phase.RUNNING and record.task is not None
            and record.starting is not None)


def _log_console(vm: Vm) -> None:
    with contextlib.suppress(DriverError), vm.monitor("reading the console of") as monitor:
        _log.error("the console of %s ends: %s", vm.sandbox_id, monitor.console()[-2000:])
