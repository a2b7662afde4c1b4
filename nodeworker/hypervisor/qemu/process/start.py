"""Bring a guest to life in its run directory: restored from a saved state, or booted from its disk.

Restore (`restore`), the order that makes a crash harmless: 1. Slot, host ports, QEMU started
stopped; RAM is put in place meanwhile (`fill_ram`). 2. Device state loaded; still nothing has
touched RAM. 3. The record says RUNNING: from here the RAM file is worth nothing without the
process. 4. `cont`; the agent is adopted (clock, randomness, token; for a clone a new identity); the
task is over.
"""
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import LaunchSpec
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.process.launch import Launched, confine, launch
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.spawn import end_vm
from nodeworker.hypervisor.qemu.records import Machine, Phase, Task
from nodeworker.hypervisor.qemu.rundir import boot_id
from nodeworker.hypervisor.qemu.vm import Vm

# A boot under emulation takes 6 to 25 s and now and then loses a timer interrupt and hangs; then it
# is started again.
COLD_BOOT_TRIES_S = (75.0, 120.0, 240.0)
# A restored guest that is only slow must not be taken for a dead one: its memory would be given up.
FIRST_REPLY_LIMIT_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """One start of a guest: for whom, whether it becomes somebody new, from which state, and how
    its RAM is put in place."""

    spec: LaunchSpec
    renew: bool
    state: Path | None = None
    fill_ram: Callable[[], None] | None = None


@dataclass(frozen=True)
class Started:
    """A QEMU that has been started; host ports and cgroup may still be in the making."""

    launched: Launched
    pending: "tuple[Future[None], ...]"

    def go(self, monitor: Monitor) -> None:
        """Let the guest execute, but not before it is confined and reachable."""
        for future in self.pending:
            future.result()
        monitor.run("cont")


def restore(vm: Vm, start: Start) -> None:
    """Start the guest from `start.state`; raises LoadFailed if RAM is still whole, another
    DriverError if it is not."""
    task = vm.record.task.value if vm.record.task else "wake"
    with ThreadPoolExecutor(max_workers=3) as background:
        filled = background.submit(start.fill_ram) if start.fill_ram else None
        with started(vm, start.state, background) as begun:
            fault(f"{task}.spawned")
            with vm.monitor("restoring", begun.launched.process) as monitor:
                if filled is not None:
                    filled.result()
                assert begun.launched.state_descriptor is not None
                monitor.load(begun.launched.state_descriptor)
                fault(f"{task}.loaded")
                vm.write(replace(vm.record, phase=Phase.RUNNING), durable=False)
                if task == "wake":
                    fault("wake.marked")
                begun.go(monitor)
            fault(f"{task}.running")
            adoption.adopt(vm, start.spec, renew=start.renew, restored=True,
                           limit_s=FIRST_REPLY_LIMIT_S)
            fault(f"{task}.adopted")
            vm.write(replace(vm.record, task=None), durable=task == "create")


def cold_boot(vm: Vm, start: Start) -> None:
    """Boot the guest from its disk with empty RAM, again if it hangs; raises DriverError when it
    never comes up."""
    for limit_s in COLD_BOOT_TRIES_S[:-1]:
        try:
            return _boot_once(vm, start, limit_s)
        except adoption.BadBoot as error:
            _log.warning("booting %s again: %s", vm.sandbox_id, error)
    return _boot_once(vm, start, COLD_BOOT_TRIES_S[-1])


def _boot_once(vm: Vm, start: Start, limit_s: float) -> None:
    vm.rundir.state.unlink(missing_ok=True)
    make_ram(vm.rundir.ram, vm.machine.shape.mem_mb)
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            with vm.monitor("booting", begun.launched.process) as monitor:
                vm.write(replace(vm.record, phase=Phase.RUNNING), durable=False)
                begun.go(monitor)
                try:
                    adoption.adopt(vm, start.spec, renew=start.renew, restored=False,
                                   limit_s=limit_s)
                except adoption.BadBoot:
                    _log.error("the console of %s ends: %s", vm.sandbox_id,
                               monitor.console()[-2000:])
                    raise
            vm.write(replace(vm.record, task=None), durable=True)


@contextmanager
def started(vm: Vm, state: Path | None, background: ThreadPoolExecutor) -> Iterator[Started]:
    """A stopped QEMU with slot, host ports and cgroup; if the block fails, process, network and
    cgroup are removed.

    A worker that is told to exit leaves everything as a killed one does: the operation is repeated
    by another.
    """
    network = vm.host.network
    try:
        slot = network.claim(vm.sandbox_id)
        forwarded = background.submit(network.forward, slot, vm.record.host_ports(), fresh=True)
        launched = launch(vm, slot, state)
        vm.write(replace(vm.record, pid=launched.process.pid,
                         start_ticks=launched.process.start_ticks, slot=slot.number),
                 durable=False)
        try:
            confined = background.submit(confine, vm, launched.process)
            yield Started(launched, (forwarded, confined))
        finally:
            launched.process.detach()
    except Exception:
        stop(vm)
        raise


def stop(vm: Vm) -> None:
    """End the process of this VM and free its network and cgroup; nothing there: no-op."""
    with ThreadPoolExecutor(max_workers=1) as background:
        released = background.submit(vm.host.network.release, vm.sandbox_id)
        end_vm(vm.rundir)
        released.result()
    vm.host.cgroups.remove(vm.sandbox_id)


def make_ram(path: Path, mem_mb: int) -> None:
    """An empty, sparse RAM file of full size, replacing any old one."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, mem_mb * 1024 * 1024)
    finally:
        os.close(descriptor)


def record_start(vm: Vm, spec: LaunchSpec, machine: Machine, *, phase: Phase,
                 task: Task | None) -> None:
    """Write the record of a new start with the ports of `spec`, without a process, durably."""
    vm.write(replace(vm.record, machine=machine, phase=phase, task=task, boot_id=boot_id(),
                     agent_port=spec.agent_port, forwards=spec.forwards, pid=None,
                     start_ticks=None, slot=None), durable=True)
