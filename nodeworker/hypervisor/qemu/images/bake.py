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
from nodeworker.hypervisor.driver import Progress, Shape
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.start import COLD_BOOT_TRIES_S, make_ram, started, stop
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)


def bake(host: Host, shape: Shape, progress: Progress) -> None:
    """See Driver.bake."""
    target = host.template_dir(shape)
    with (host.templates / f"{target.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if host.find_template(shape) is not None:
            return
        vm = Vm(host, RunDir(target.with_name(f"{target.name}.tmp")))
        try:
            _boot_well_and_save(vm, shape, progress)
            progress("writing to disk")
            _publish(vm)
        except BaseException:
            discard(vm)
            raise
    fault("bake.complete")


def _boot_well_and_save(vm: Vm, shape: Shape, progress: Progress) -> None:
    progress("booting")
    for limit_s in COLD_BOOT_TRIES_S[:-1]:
        try:
            return _boot_and_save(vm, shape, limit_s, progress)
        except adoption.BadBoot as error:
            _log.warning("booting the image again for %s: %s", vm.sandbox_id, error)
            progress("booting again")
    return _boot_and_save(vm, shape, COLD_BOOT_TRIES_S[-1], progress)


def discard(vm: Vm) -> None:
    """Remove a template in the making, with its process and network; nothing there: no-op. Its lock
    must be held."""
    if vm.rundir.path.exists():
        stop(vm)
        remove_tree(vm.rundir.path, vm.host.trash)


def _boot_and_save(vm: Vm, shape: Shape, limit_s: float, progress: Progress) -> None:
    discard(vm)
    vm.rundir.path.mkdir(mode=0o700)
    blank = vm.host.blank_machine(shape)
    machine = replace(blank, chain=(*blank.chain, f"template:{vm.rundir.path.name}"))
    vm.host.layers.create(machine.chain[-1], machine.disk_bytes)
    make_ram(vm.rundir.ram, shape.mem_mb)
    vm.write(SandboxRecord(vm.sandbox_id, machine, Phase.RUNNING, None, boot_id(), agent_port=0,
                           forwards=()), durable=False)
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            fault("bake.spawned")
            with vm.monitor("baking", begun.launched.process) as monitor:
                begun.go(monitor)
                adoption.warm_up(vm, limit_s, answered=lambda: progress("warming up"))
                progress("saving")
                monitor.run("stop")
                monitor.save(vm.rundir.state)
    stop(vm)
    fault("bake.saved")


def _publish(vm: Vm) -> None:
    host, directory = vm.host, vm.rundir.path
    target = directory.with_suffix("")
    _tidy_ram(vm.rundir)
    disk = host.layers.path(vm.machine.chain[-1])
    keep = {"ram", "state", disk.name}
    for path in directory.iterdir():
        if path.name not in keep:
            path.unlink()
    for name in keep:
        sync_file(directory / name)
    write_json(directory / "token", {"token": host.image.agent_token})
    final = replace(vm.machine, chain=(*vm.machine.chain[:-1], f"template:{target.name}"))
    write_json(directory / "template.json", final.to_json())
    remove_tree(target, host.trash)
    os.rename(directory, target)
    sync_directory(host.templates)


def _tidy_ram(rundir: RunDir) -> None:
    """Holes where pages are zero, and the rest in few pieces: every create copies this file."""
    tidy = rundir.ram.with_name("ram.tidy")
    with rundir.ram.open("r+b") as ram, tidy.open("w+b") as copy:
        sparse.punch_zero_pages(ram.fileno())
        sparse.clone(ram.fileno(), copy.fileno())
        os.fchmod(copy.fileno(), 0o400)
    os.rename(tidy, rundir.ram)
