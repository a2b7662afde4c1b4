"""Start the process of a VM together with its network slot, forwarded ports and cgroup, and end all
of them.
"""
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nodeworker.hypervisor.driver import StillStarting
from nodeworker.hypervisor.qemu.process.monitor import IoLimit, Monitor
from nodeworker.hypervisor.qemu.process.qemu_process import end_vm
from nodeworker.hypervisor.qemu.process.start_qemu import Launched, confine, start_qemu
from nodeworker.hypervisor.qemu.vm import Vm


@dataclass(frozen=True)
class Stopped:
    """A QEMU whose guest stands still; host ports and cgroup may still be in the making."""

    forwarded: "Future[None]"
    confined: "Future[None] | None"
    limit: IoLimit

    def go(self, monitor: Monitor) -> None:
        """Let the guest execute, but not before it is confined. Its agent is asked at the address
        of the slot, so it need not be reachable from elsewhere yet."""
        monitor.limit_io(self.limit)
        if self.confined is not None:
            self.confined.result()
        monitor.cont()

    def wait_reachable(self) -> None:
        """Return once the host ports lead to the guest; raises NftError if they cannot."""
        self.forwarded.result()


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
    network = vm.host.network
    try:
        slot = network.claim(vm.sandbox_id)
        forwarded = background.submit(network.forward, slot, vm.record.host_ports(), fresh=True)
        launched = start_qemu(vm, slot, state)
        vm.write(replace(vm.record, pid=launched.process.pid,
                         start_ticks=launched.process.start_ticks, slot=slot.number,
                         baseline=None), durable=False)
        try:
            confined = background.submit(confine, vm, launched.process)
            yield Started(forwarded, confined, IoLimit.of(vm.host.settings), launched)
        finally:
            launched.process.detach()
    except StillStarting:
        raise
    except Exception:
        stop(vm)
        raise


@contextmanager
def continued(vm: Vm, background: ThreadPoolExecutor) -> Iterator[Stopped]:
    """The process that is kept of a saved sandbox, with host ports again; if the block fails, all
    of it is removed as by `started`."""
    try:
        forwarded = background.submit(vm.host.network.forward, vm.slot, vm.record.host_ports(),
                                      fresh=True)
        yield Stopped(forwarded, None, IoLimit.of(vm.host.settings))
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
