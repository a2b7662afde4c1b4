"""Bake a warm image: boot the guest image once, warm it up, and keep its memory, device state and
disk for every later create.

1. One process at a time per warm image; a working directory of an earlier, dead attempt is removed
   first.
2. Cold boot, `prepare` (drop caches, settle), a few requests so that the hot path is in memory.
3. `stop`, device state, process ended; pages of zeros become holes.
4. Everything flushed, then renamed into place: nothing of a failed attempt is ever visible.
"""
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from guest.client.agent_client import AgentClient
from nodeworker.disks import sparse
from nodeworker.disks.durable import sync_directory, sync_file, write_json
from nodeworker.disks.layers import warm_image_reference
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.faults import fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import Progress, Shape
from nodeworker.hypervisor.qemu.guest.adoption import BadBoot
from nodeworker.hypervisor.qemu.guest.first_answer import BOOT_LIMITS_S
from nodeworker.hypervisor.qemu.guest.warm_presets import run_once
from nodeworker.hypervisor.qemu.guest.warm_up import warm_up
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.build_presets_image import build_presets_image
from nodeworker.hypervisor.qemu.images.guest_image import find_presets
from nodeworker.hypervisor.qemu.process.start_in_slot import started, stop
from nodeworker.hypervisor.qemu.records import (
    Machine,
    Phase,
    SandboxRecord,
    find_warm_image,
    write_warm_image,
)
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)


def bake(host: Host, shape: Shape, progress: Progress, *, presets: bool) -> None:
    """See Driver.bake."""
    if presets:
        build_presets_image(host.settings, progress)
    blank = host.blank_machine(shape, presets=presets)
    target = host.warm_image_dir(shape, presets=presets)
    with locks.hold(host.warm_images / f"{target.name}.lock"):
        if find_warm_image(target) is not None:
            return
        vm = Vm(host, RunDir(target.with_name(f"{target.name}.tmp")))
        try:
            progress("booting")
            _boot_until_good(vm, blank, progress)
            progress("writing to disk")
            _publish(vm)
        except BaseException:
            discard(vm)
            raise
    fault("bake.complete")


def discard(vm: Vm) -> None:
    """Remove a warm image in the making, with its process and network; nothing there: no-op. Its
    lock must be held.

    It is removed where it is, and at once: the trash may be on another file system, and whoever
    bakes next asks what is free. Half of it is still what `discard` removes.
    """
    if vm.rundir.path.exists():
        stop(vm)
        shutil.rmtree(vm.rundir.path)


def _boot_until_good(vm: Vm, blank: Machine, progress: Progress) -> None:
    """Boot and save, again with more time after a boot that hung; raises the last BadBoot."""
    for limit_s in BOOT_LIMITS_S[:-1]:
        try:
            return _boot_and_save(vm, blank, limit_s, progress)
        except BadBoot as error:
            _log.warning("booting %s again: %s", vm.sandbox_id, error)
            progress("booting again")
    return _boot_and_save(vm, blank, BOOT_LIMITS_S[-1], progress)


def _boot_and_save(vm: Vm, blank: Machine, limit_s: float, progress: Progress) -> None:
    discard(vm)
    vm.host.image_disk_floor.check(blank.shape.mem_mb * MIB)
    vm.rundir.path.mkdir(mode=0o700)
    machine = replace(blank, chain=(*blank.chain, warm_image_reference(vm.rundir.path.name)))
    vm.host.layers.create(machine.chain[-1], machine.disk_bytes)
    vm.rundir.make_ram(blank.shape.mem_mb)
    vm.rundir.reserve_ram()
    vm.write(SandboxRecord(vm.sandbox_id, machine, Phase.RUNNING, None, boot_id(), agent_port=0,
                           forwards=()), durable=False)
    with ThreadPoolExecutor(max_workers=2) as background:
        with started(vm, None, background) as begun:
            fault("bake.spawned")
            with vm.monitor("baking", begun.launched.process) as monitor:
                begun.go(monitor)
                warm_up(vm, limit_s, answered=partial(_run_presets, vm, progress))
                progress("saving")
                monitor.run("stop")
                monitor.save(vm.rundir.state)
    stop(vm)
    fault("bake.saved")


def _run_presets(vm: Vm, progress: Progress, agent: AgentClient) -> None:
    progress("warming up")
    presets = find_presets(vm.host.image_for(vm.machine))
    if presets is not None:
        run_once(agent, presets)


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
    write_json(directory / "token", {"token": host.image_for(vm.machine).agent_token})
    chain = (*vm.machine.chain[:-1], warm_image_reference(target.name))
    write_warm_image(directory, replace(vm.machine, chain=chain))
    if target.exists():  # without a record: nobody takes it for a warm image
        shutil.rmtree(target)
    os.rename(directory, target)
    sync_directory(host.warm_images)


def _tidy_ram(rundir: RunDir) -> None:
    """Holes where pages are zero, and the rest in few pieces: every create copies this file."""
    tidy = rundir.ram.with_name("ram.tidy")
    with rundir.ram.open("r+b") as ram, tidy.open("w+b") as copy:
        sparse.punch_zero_pages(ram.fileno())
        sparse.clone(ram.fileno(), copy.fileno())
        os.fchmod(copy.fileno(), 0o400)
    os.rename(tidy, rundir.ram)
