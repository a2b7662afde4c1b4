"""Make spares (`warm_spares`), one at a time, while the CPU has nothing else to do.

A spare is restored like any new sandbox, with an identity of its own that nobody else will have. It
answers a command, takes a second identity, as it will when it becomes a sandbox, and starts what
callers begin with, if it is of a warm image: so what the emulator translates for that has been
translated. Then it is suspended, and what it never used of its memory is given back to the disk.
"""
import logging
import os
import secrets
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from guest.agent.protocol import AGENT_PORT
from guest.client.agent_client import AgentClient
from nodeworker.disks.durable import write_atomic
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.faults import fault
from nodeworker.hypervisor import host_memory, locks
from nodeworker.hypervisor.driver import MachineSpec, VmNotFound
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.records import Machine, Task
from nodeworker.hypervisor.qemu.restoring.clone import clone, record_new_sandbox
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.qemu.suspended import demand, warm_spares
from nodeworker.hypervisor.qemu.suspended.spare_sources import SpareSource, find_source
from nodeworker.hypervisor.qemu.suspended.spare_targets import targets
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
# A guest may be hostile, and while one spare is made no other is.
_ANSWER_LIMIT_S, _START_LIMIT_MS, _START_GRACE_S = 10.0, 10_000, 2.0
_NOTHING = ["/bin/true"]
# A shell, a pipe, Python: with them comes what all programs share, the loader and the C library.
_FIRST_STARTS = "ls / | cat; python3 -c 'import json'"
# So many CPUs must have been idle since the last look, but no more than a share of all there are:
# what makes a spare takes one for a second or two. On a host of two, a guest that keeps one busy
# holds it back: somebody may be waiting for that guest.
_IDLE_CPUS, _IDLE_SHARE = 1.5, 0.75


class SpareMaker:
    """Makes the spares of one node; `look` is called every few seconds, by one process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._cpu = _cpu_times()

    def look(self) -> None:
        """Begin to make a spare, in a thread, if one is wanted and the host has been idle since the
        last look."""
        before, self._cpu = self._cpu, _cpu_times()
        passed, cpus = self._cpu[1] - before[1], os.cpu_count() or 1
        wanted = min(_IDLE_CPUS / cpus, _IDLE_SHARE)
        if passed > 0 and (self._cpu[0] - before[0]) / passed >= wanted:
            name = find_missing(self._host)
            if name:
                threading.Thread(target=self._make, args=(name,), name="warm-spare",
                                 daemon=True).start()

    def _make(self, name: str) -> None:
        try:
            make(self._host, name)
        except Exception as error:
            _log.warning("no spare of %s could be made: %s", name, error)


def find_missing(host: Host) -> str:
    """The source of which a spare should be made next; empty if there are enough, or if there is no
    room for one."""
    if host.settings.warm_spares == 0 or host_memory.is_short():
        return ""
    ready = warm_spares.count_ready(host)
    for name, target in targets(host).items():
        if ready.get(name, 0) < target:
            source = find_source(host, name)
            if source is not None and _has_room(host, source.machine):
                return name
    return ""


def make(host: Host, name: str) -> None:
    """Make a spare of the source `name`, unless another process is making one or creates do not
    use it any more. After a failure nothing of it is left, and a snapshot has to be wanted anew."""
    with locks.nobody_at_work(host.warm / "lock") as is_mine:
        source = find_source(host, name) if is_mine else None
        if source is None:
            return
        try:
            _make(host, source)
        except Exception:
            if source.snapshot_id is not None:
                demand.forget(host.warm, name)
            raise
        if source.snapshot_id is None:
            host.spares.refill_in_background(host.warm_images / name)


def _spec(source: SpareSource) -> MachineSpec:
    return MachineSpec(f"{warm_spares.PREFIX}{secrets.token_hex(6)}", source.machine.shape,
                       secrets.token_urlsafe(32), agent_port=0, snapshot_id=source.snapshot_id,
                       presets=source.presets)


def _make(host: Host, source: SpareSource) -> None:
    spec = _spec(source)
    rundir = RunDir(host.warm / spec.sandbox_id)
    with rundir.operation(create=True):
        vm = Vm(host, rundir)
        try:
            saved = record_new_sandbox(vm, spec)
            vm.write(replace(vm.record, task=Task.SPARE), durable=False)
            fault("spare.recorded")
            rundir.write_tokens(*saved.tokens, spec.agent_token, durable=False)
            if saved.directory is None or saved.unfit:
                raise VmNotFound(f"{source.name} is not what spares are made of any more")
            clone(vm, spec, saved.directory)
            _run_once(vm, spec)
            rundir.release_ram()
            vm.write(replace(vm.record, task=Task.CREATE), durable=False)
            fault("spare.stopped")
            write_atomic(rundir.path / warm_spares.READY, source.name.encode(), durable=False)
            fault("spare.ready")
        except BaseException:
            warm_spares.discard(vm)
            raise


def _run_once(vm: Vm, spec: MachineSpec) -> None:
    agent = AgentClient(vm.slot.address, AGENT_PORT, spec.agent_token)
    run = partial(agent.exec, cwd="/", timeout_ms=_START_LIMIT_MS, grace_s=_START_GRACE_S)
    run(_NOTHING)
    adoption.adopt(vm, spec, renew=True, restored=True, limit_s=_ANSWER_LIMIT_S)
    if spec.snapshot_id is None:
        run(shell=_FIRST_STARTS)
    else:  # whose disk and programs are its owner's
        run(_NOTHING)
    with vm.monitor("stopping the spare") as monitor:
        monitor.run("stop")


def _has_room(host: Host, machine: Machine) -> bool:
    needed = (machine.shape.mem_mb + host.settings.disk_floor_mb) * MIB
    return (ram_room.may_be_whole(host, machine.shape.mem_mb)
            and host.disk_floor.space().free_bytes > needed)


def _cpu_times() -> tuple[int, int]:
    """Idle and all ticks of all CPUs since the host was started."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(number) for number in first.split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
