"""Start the process of a VM together with its network slot, forwarded ports and cgroup, and end all
of them.
"""
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import StillStarting
from nodeworker.hypervisor.qemu.process import fork_memory_ahead, prepared_processes
from nodeworker.hypervisor.qemu.process.assemble_machine import (
    STATE,
    assemble,
    connect,
    hand_slot_over,
)
from nodeworker.hypervisor.qemu.process.cpu_usage import age_ms
from nodeworker.hypervisor.qemu.process.monitor import IoLimit, Monitor
from nodeworker.hypervisor.qemu.process.prepared_processes import Prepared
from nodeworker.hypervisor.qemu.process.qemu_process import end_vm
from nodeworker.hypervisor.qemu.process.start_qemu import Launched, confine, start_qemu
from nodeworker.hypervisor.qemu.records import Baseline
from nodeworker.hypervisor.qemu.vm import Vm
from nodeworker.network.addresses import Slot

_log = logging.getLogger(__name__)
# After which ports are forwarded again that could not be.
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Stopped:
    """A QEMU whose guest stands still; host ports and cgroup may still be in the making. `limit` is
    what is still to be said of how fast it may use its disk."""

    forwarded: "Future[None]"
    confined: "Future[None] | None"
    limit: IoLimit | None

    def go(self, monitor: Monitor) -> None:
        """Let the guest execute, but not before it is confined. Its agent is asked at the address
        of the slot, so it need not be reachable from elsewhere yet."""
        self.confine(monitor)
        monitor.cont()

    def confine(self, monitor: Monitor) -> None:
        """Return once the guest may execute: within its limits."""
        if self.limit is not None:
            monitor.limit_io(self.limit)
        if self.confined is not None:
            self.confined.result()

    def wait_reachable(self) -> None:
        """Return once the host ports lead to the guest. Raises StillStarting if they do not: a
        guest that answers is not given up for what the host could not do in that moment."""
        try:
            self.forwarded.result()
        except Exception as error:
            raise StillStarting(f"no port leads to the guest yet: {error}", _PAUSE_S) from error


@dataclass(frozen=True)
class Started(Stopped):
    """One that has just been started."""

    launched: Launched


@contextmanager
def started(vm: Vm, state: Path | None, background: ThreadPoolExecutor) -> Iterator[Started]:
    """A stopped QEMU with slot, host ports and cgroup; if the block fails, process, network and
    cgroup are removed.

    A guest that has not answered yet (StillStarting) goes on. A worker that is told to exit leaves
    everything as a killed one does: the operation is repeated by another.
    """
    try:
        slot, begun, baseline = (
            _taken_over(vm, state, background) or _started_now(vm, state, background))
        process = begun.launched.process
        vm.write(replace(vm.record, pid=process.pid, start_ticks=process.start_ticks,
                         slot=slot.number, baseline=baseline), durable=False)
        try:
            yield begun
        finally:
            process.detach()
            if begun.launched.monitor is not None:
                begun.launched.monitor.close()
    except StillStarting:
        raise
    except Exception:
        stop(vm)
        raise


_Begun = tuple[Slot, Started, Baseline | None]


def _started_now(vm: Vm, state: Path | None, background: ThreadPoolExecutor) -> _Begun:
    slot = vm.host.network.claim(vm.sandbox_id)
    forwarded = _forward(vm, slot, background)
    launched = start_qemu(vm, slot, state)
    confined = background.submit(confine, vm, launched.process)
    return slot, Started(forwarded, confined, IoLimit.of(vm.host.settings), launched), None


def _taken_over(vm: Vm, state: Path | None, background: ThreadPoolExecutor) -> _Begun | None:
    """With a process that was started ahead; None if there is none, or it was of no use."""
    if state is None or not vm.host.settings.prepared_processes:
        return None
    with _waiting(vm) as waiting:
        if waiting is None:
            return None
        works: list[Future[None]] = []
        monitor = waiting.monitor
        try:
            fault("prepared.taken")
            slot = hand_slot_over(vm, waiting)
            forwarded = _forward(vm, slot, background)
            # The kernel takes longer to move a process than to do anything that is done beside it.
            confined = background.submit(confine, vm, waiting.process)
            works += (forwarded, confined)
            monitor = monitor or connect(waiting)
            assemble(vm, waiting, state, monitor)
            # It is as old as it is, but this sandbox's from now on only.
            baseline = Baseline(vm.record.revision, 0, age_ms(waiting.process))
            launched = Launched(waiting.process, STATE, monitor)
            return slot, Started(forwarded, confined, None, launched), baseline
        except Exception as error:
            _log.warning("the process %s is of no use: %s", waiting.rundir.sandbox_id, error)
            if monitor is not None:
                monitor.close()
            wait(works)
            stop(vm)
            prepared_processes.discard(vm.host, waiting.rundir)
            return None


@contextmanager
def _waiting(vm: Vm) -> Iterator[Prepared | None]:
    with fork_memory_ahead.taken(vm) as given:
        if given is not None:
            yield given
            return
    with prepared_processes.taken(vm.host, vm.machine) as waiting:
        yield waiting


def _forward(vm: Vm, slot: Slot, background: ThreadPoolExecutor) -> "Future[None]":
    return background.submit(vm.host.network.forward, slot, vm.record.host_ports(), fresh=True)


@contextmanager
def continued(vm: Vm, background: ThreadPoolExecutor) -> Iterator[Stopped]:
    """The process that is kept of a saved sandbox, with host ports again; if the block fails, all
    of it is removed as by `started`."""
    try:
        yield Stopped(_forward(vm, vm.slot, background), None, IoLimit.of(vm.host.settings))
    except StillStarting:
        raise
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
