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
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.launch import Launched, Monitor, confine, launch
from nodeworker.hypervisor.qemu.process.spawn import end_vm
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.network.addresses import Slot

# A boot under emulation takes 6 to 25 s and now and then loses a timer interrupt and hangs; then it
# is started again.
COLD_BOOT_TRIES_S = (75.0, 120.0, 240.0)
# A restored guest that is only slow must not be taken for a dead one: its memory would be given up.
FIRST_REPLY_LIMIT_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """One start of a guest: who, from which state, with which tokens and whether it becomes
    somebody new."""

    spec: LaunchSpec
    record: SandboxRecord
    renew: bool
    state: Path | None = None
    fill_ram: Callable[[], None] | None = None


@dataclass(frozen=True)
class Started:
    """A QEMU that has been started; host ports and cgroup may still be in the making."""

    launched: Launched
    record: SandboxRecord
    pending: "tuple[Future[None], ...]"

    def go(self, monitor: Monitor) -> None:
        """Let the guest execute, but not before it is confined and reachable."""
        for future in self.pending:
            future.result()
        monitor.run("cont")


def restore(host: Host, rundir: RunDir, start: Start) -> SandboxRecord:
    """Start the guest from `start.state`; raises LoadFailed if RAM is still whole, another
    DriverError if it is not."""
    task = start.record.task.value if start.record.task else "wake"
    with ThreadPoolExecutor(max_workers=3) as background:
        filled = background.submit(start.fill_ram) if start.fill_ram else None
        with started(host, rundir, start, background) as begun:
            fault(f"{task}.spawned")
            with Monitor.of(rundir, begun.launched.process) as monitor:
                if filled is not None:
                    filled.result()
                assert begun.launched.state_descriptor is not None
                monitor.load(begun.launched.state_descriptor)
                fault(f"{task}.loaded")
                record = rundir.write(replace(begun.record, phase=Phase.RUNNING), durable=False)
                if task == "wake":
                    fault("wake.marked")
                begun.go(monitor)
            fault(f"{task}.running")
            adoption.adopt(rundir, host, start.spec, record, renew=start.renew, restored=True,
                           limit_s=FIRST_REPLY_LIMIT_S)
            fault(f"{task}.adopted")
            return rundir.write(replace(record, task=None), durable=task == "create")


def cold_boot(host: Host, rundir: RunDir, start: Start) -> SandboxRecord:
    """Boot the guest from its disk with empty RAM, again if it hangs; raises DriverError when it
    never comes up."""
    for limit_s in COLD_BOOT_TRIES_S[:-1]:
        try:
            return _boot_once(host, rundir, start, limit_s)
        except adoption.BadBoot as error:
            _log.warning("booting %s again: %s", rundir.sandbox_id, error)
    return _boot_once(host, rundir, start, COLD_BOOT_TRIES_S[-1])


def _boot_once(host: Host, rundir: RunDir, start: Start, limit_s: float) -> SandboxRecord:
    rundir.state.unlink(missing_ok=True)
    make_ram(rundir.ram, start.record.machine.shape.mem_mb)
    with ThreadPoolExecutor(max_workers=2) as background, started(host, rundir, start,
                                                                  background) as begun:
        with Monitor.of(rundir, begun.launched.process) as monitor:
            record = rundir.write(replace(begun.record, phase=Phase.RUNNING), durable=False)
            begun.go(monitor)
            try:
                adoption.adopt(rundir, host, start.spec, record, renew=start.renew, restored=False,
                               limit_s=limit_s)
            except adoption.BadBoot:
                _log.error("the console of %s ends: %s", rundir.sandbox_id,
                           monitor.console()[-2000:])
                raise
        return rundir.write(replace(record, task=None), durable=True)


@contextmanager
def started(host: Host, rundir: RunDir, start: Start,
            background: ThreadPoolExecutor) -> Iterator[Started]:
    """A stopped QEMU with slot, host ports and cgroup; if the block fails, process, network and
    cgroup are removed.

    A worker that is told to exit leaves everything as a killed one does: the operation is repeated
    by another.
    """
    record = start.record
    try:
        slot = host.network.claim(rundir.sandbox_id)
        forwarded = background.submit(host.network.forward, slot, record.host_ports(), fresh=True)
        launched = launch(host, rundir, record.machine, slot, start.state)
        record = rundir.write(_with_process(record, launched, slot), durable=False)
        try:
            confined = background.submit(confine, host, rundir, record.machine, launched.process)
            yield Started(launched, record, (forwarded, confined))
        finally:
            launched.process.detach()
    except Exception:
        stop(host, rundir, record)
        raise


def stop(host: Host, rundir: RunDir, record: SandboxRecord | None) -> None:
    """End the process of this run directory and free its network and cgroup; nothing there:
    no-op."""
    with ThreadPoolExecutor(max_workers=1) as background:
        released = background.submit(host.network.release, rundir.sandbox_id)
        end_vm(rundir, record.pid if record else None, record.start_ticks if record else None)
        released.result()
    host.cgroups.remove(rundir.sandbox_id)


def make_ram(path: Path, mem_mb: int) -> None:
    """An empty, sparse RAM file of full size, replacing any old one."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, mem_mb * 1024 * 1024)
    finally:
        os.close(descriptor)


def fresh_record(spec: LaunchSpec, record: SandboxRecord, *, phase: Phase,
                 task: Task | None) -> SandboxRecord:
    """`record` for a new start with the ports of `spec`, without a process."""
    return replace(record, phase=phase, task=task, boot_id=boot_id(), agent_port=spec.agent_port,
                   forwards=spec.forwards, pid=None, start_ticks=None, slot=None)


def _with_process(record: SandboxRecord, launched: Launched, slot: Slot) -> SandboxRecord:
    return replace(record, pid=launched.process.pid, start_ticks=launched.process.start_ticks,
                   slot=slot.number)
