"""Wait for the first answer of a guest that was started, without keeping a worker for it.

1. Right after the start the guest gets a moment, which is all that a restore needs. 2. One that is
silent for longer goes on starting: `StillStarting` tells the caller when to look again. 3. Each
look is a little longer than the one before. 4. A guest that has had its time is a BadBoot.
"""
import time

from nodeworker.hypervisor.driver import MachineSpec, StillStarting
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.records import Starting, Task
from nodeworker.hypervisor.qemu.vm import Vm

# A restored guest that is only slow must not be taken for a dead one: its memory would be given up.
RESTORE_LIMIT_S = 60.0
# What a cold boot gets (s), at the first try and at those after a boot that hung: under emulation
# one takes 6 to 25 s, and now and then loses a timer interrupt.
BOOT_LIMITS_S = (75.0, 120.0, 240.0)
# How long a worker listens for a restored guest, a booting one, and how much longer (as a share of
# the time since the start) when it comes back. A guest may be slow because its host is, so it must
# get longer in the end than its answer takes.
_RESTORED_MOMENT_S, _BOOTING_MOMENT_S = 3.0, 1.0
_LONGER, _LONGEST_MOMENT_S = 0.25, 8.0
_PAUSE_S = 1.0


def began(tries: int = 0, cold_reason: str = "") -> Starting:
    """A start that begins now."""
    return Starting(time.monotonic(), tries, cold_reason)


def await_answer(vm: Vm, spec: MachineSpec, *, renew: bool) -> None:
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
    if vm.record.task is Task.CREATE:
        vm.host.network.let_out(vm.slot)  # one that was a spare was cut off


def _limit_s(starting: Starting) -> float:
    return BOOT_LIMITS_S[starting.tries] if starting.cold_reason else RESTORE_LIMIT_S
