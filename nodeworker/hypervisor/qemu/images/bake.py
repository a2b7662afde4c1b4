"""Bake a template: boot the image once, warm it up, and keep its memory, device state and disk for
every later create.

1. One process at a time per template; a working directory of an earlier, dead attempt is removed
first. 2. Cold boot, `prepare` (drop caches, settle), a few requests so that the hot path is in
memory. 3. `stop`, device state, process ended; pages of zeros become holes. 4. Everything flushed,
then renamed into place: nothing of a failed attempt is ever visible.
"""
import fcntl
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeworker.disks import sparse
from nodeworker.disks.durable import remove_tree, sync_directory, sync_file, write_json
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import LaunchSpec, Progress, Shape
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.start import (
    COLD_BOOT_TRIES_S,
    Start,
    make_ram,
    started,
    stop,
)
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id

_log = logging.getLogger(__name__)


def bake(host: Host, shape: Shape, progress: Progress) -> None:
    """See Driver.bake."""
    target = host.template_dir(shape)
    with (host.templates / f"{target.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if host.find_template(shape) is not None:
            return
        rundir = RunDir(target.with_name(f"{target.name}.tmp"))
        try:
            machine = _boot_well_and_save(host, rundir, shape, progress)
            progress("writing to disk")
            _publish(host, rundir, machine)
        except BaseException:
            discard(host, rundir)
            raise
    fault("bake.complete")


def _boot_well_and_save(host: Host, rundir: RunDir, shape: Shape, progress: Progress) -> Machine:
    progress("booting")
    for limit_s in COLD_BOOT_TRIES_S[:-1]:
        try:
            return _boot_and_save(host, rundir, shape, limit_s, progress)
        except adoption.BadBoot as error:
            _log.warning("booting the image again for %s: %s", rundir.sandbox_id, error)
            progress("booting again")
    return _boot_and_save(host, rundir, shape, COLD_BOOT_TRIES_S[-1], progress)


def discard(host: Host, rundir: RunDir) -> None:
    """Remove a template in the making, with its process and network; nothing there: no-op. Its lock
    must be held."""
    if rundir.path.exists():
        stop(host, rundir, rundir.find_record())
        remove_tree(rundir.path, host.trash)


def _boot_and_save(host: Host, rundir: RunDir, shape: Shape, limit_s: float,
                   progress: Progress) -> Machine:
    discard(host, rundir)
    rundir.path.mkdir(mode=0o700)
    blank = host.blank_machine(shape)
    machine = replace(blank, chain=(*blank.chain, f"template:{rundir.path.name}"))
    host.layers.create(machine.chain[-1], machine.disk_bytes)
    make_ram(rundir.ram, shape.mem_mb)
    record = SandboxRecord(rundir.sandbox_id, machine, Phase.RUNNING, None, boot_id(), agent_port=0,
                           forwards=())
    spec = LaunchSpec(rundir.sandbox_id, shape, host.image.agent_token, agent_port=0)
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(host, rundir, Start(spec, record, renew=False), background) as begun:
            fault("bake.spawned")
            with Monitor.of(rundir, begun.launched.process) as monitor:
                begun.go(monitor)
                adoption.warm_up(host, begun.record, limit_s,
                                 answered=lambda: progress("warming up"))
                progress("saving")
                monitor.run("stop")
                monitor.save(rundir.state)
    stop(host, rundir, begun.record)
    fault("bake.saved")
    return machine


def _publish(host: Host, rundir: RunDir, machine: Machine) -> None:
    target = rundir.path.with_suffix("")
    _tidy_ram(rundir)
    disk = host.layers.path(machine.chain[-1])
    keep = {"ram", "state", disk.name}
    for path in rundir.path.iterdir():
        if path.name not in keep:
            path.unlink()
    for name in keep:
        sync_file(rundir.path / name)
    write_json(rundir.path / "token", {"token": host.image.agent_token})
    final = replace(machine, chain=(*machine.chain[:-1], f"template:{target.name}"))
    write_json(rundir.path / "template.json", final.to_json())
    remove_tree(target, host.trash)
    os.rename(rundir.path, target)
    sync_directory(host.templates)


def _tidy_ram(rundir: RunDir) -> None:
    """Holes where pages are zero, and the rest in few pieces: every create copies this file."""
    tidy = rundir.ram.with_name("ram.tidy")
    with rundir.ram.open("r+b") as ram, tidy.open("w+b") as copy:
        sparse.punch_zero_pages(ram.fileno())
        sparse.clone(ram.fileno(), copy.fileno())
        os.fchmod(copy.fileno(), 0o400)
    os.rename(tidy, rundir.ram)
