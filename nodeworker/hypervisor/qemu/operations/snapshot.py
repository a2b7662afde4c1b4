"""Capture a running or sleeping sandbox: disk and memory of one instant, while the sandbox stays
what it was.

Of a running one: 1. A new overlay is made and recorded as the sandbox's own (an empty layer on top
changes nothing, whenever we die), unless the present one is as empty still: then what lies below it
is the disk. RAM is copied meanwhile, as it is while the guest writes to it. 2. `stop`; QEMU
switches to the overlay; the layer below is frozen from now on. 3. Device state is written while the
copy of RAM is made equal to it (`nodeworker/disks/ram_capture.py`); `cont`. Only 2 and 3 are the
pause. 4. Flush, and rename the directory into its final name: the commit point. The memory of a
transient capture is not flushed, see `images/lent_memory.py`.
"""
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.disks.durable import remove_tree, sync_directory, sync_file, write_json
from nodeworker.disks.ram_capture import RamCapture
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.faults import fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.hypervisor.host_facts import SnapshotFacts
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import recover, settle_chain
from nodeworker.hypervisor.qemu.process import argv, fork_memory_ahead
from nodeworker.hypervisor.qemu.process.assemble_machine import below_top
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.records import Phase, SnapshotRecord, Task
from nodeworker.hypervisor.qemu.rundir import boot_id, ram_is_whole
from nodeworker.hypervisor.qemu.suspended import kept_machines
from nodeworker.hypervisor.qemu.vm import Vm, created_vm

_MEMORY = ("ram", "state")


def snapshot(host: Host, sandbox_id: str, snapshot_id: str, *, transient: bool) -> SnapshotFacts:
    """See Driver.snapshot."""
    known = host.find_snapshot(snapshot_id)
    if known is not None:
        return _facts(known)
    host.disk_floor.check()  # and again when it is known how much is to be written
    fault("snapshot.looked")
    with created_vm(host, sandbox_id) as vm:
        # Another worker may have completed it while this one waited for the lock.
        known = host.find_snapshot(snapshot_id)
        if known is None:
            known = _capture(vm, snapshot_id, transient=transient)
        return _facts(known)


def _capture(vm: Vm, snapshot_id: str, *, transient: bool) -> SnapshotRecord:
    with (
        making(vm.host, snapshot_id) as directory,
        ThreadPoolExecutor(max_workers=1) as background,
    ):
        noted = background.submit(write_json, directory / "token", {"token": vm.rundir.tokens()[0]})
        if vm.rundir.is_alive() and vm.record.phase is Phase.RUNNING:
            pause_ms = _capture_running(vm, directory)
            lends_in = boot_id() if transient else None
            if transient:
                fork_memory_ahead.begin(vm.host, below_top(vm.machine), directory / "ram")
        else:
            _capture_asleep(vm, directory)
            pause_ms, lends_in = 0.0, None
        noted.result()
        return _complete(vm, directory, snapshot_id, pause_ms, lends_in)


def _facts(record: SnapshotRecord) -> SnapshotFacts:
    """What callers may know of a snapshot."""
    return SnapshotFacts(record.snapshot_id, record.size_bytes, record.pause_ms, record.has_memory)


@contextmanager
def making(host: Host, snapshot_id: str) -> Iterator[Path]:
    """A locked working directory `<id>.tmp`; whatever an earlier attempt left in it is removed, and
    what this one leaves. A reclaim that sees it before it is locked may take it away: then it is
    made again."""
    directory = host.snapshots / f"{snapshot_id}.tmp"
    remove_tree(directory, host.trash)
    lock = locks.wait_lock(directory / "lock", make_directory=True)
    try:
        yield directory
    finally:
        os.close(lock)
        remove_tree(directory, host.trash)


def _capture_running(vm: Vm, directory: Path) -> float:
    """How long the guest stood still, in milliseconds."""
    if vm.is_starting:
        raise VmBusy(f"the guest of {vm.sandbox_id} has not answered yet")
    if vm.record.task is not None:
        recover(vm)
    flatten.end_if_far_too_long(vm)
    fault("snapshot.begun")
    with (
        _ram_capture(vm, directory / "ram") as memory,
        _in_background(memory.begin) as (begun, background),
        vm.monitor("snapshot of") as monitor,
    ):
        try:
            flatten.settle(vm, monitor)
            overlay = _new_overlay(vm, monitor)
            fault("snapshot.layer_recorded")
            begun.result()
            fault("snapshot.ram_begun")
            overlay, began = _stop(vm, monitor, overlay)
            _capture_standing(vm, monitor, overlay, background, memory, directory / "state")
            pause_ms = (time.monotonic() - began) * 1000
            flatten.begin(vm, monitor)
        except Exception:
            settle_chain(vm, monitor)
            monitor.cont()
            flatten.begin(vm, monitor)
            vm.write(replace(vm.record, task=None), durable=False)
            raise
    vm.write(replace(vm.record, task=None), durable=False)
    fault("snapshot.resumed")
    return pause_ms


@contextmanager
def _in_background(work: Callable[[], None]) -> Iterator[tuple["Future[None]", ThreadPoolExecutor]]:
    """A thread that has begun with `work` and takes more; at the end of the block it is waited
    for."""
    with ThreadPoolExecutor(max_workers=1) as background:
        yield background.submit(work), background


def _new_overlay(vm: Vm, monitor: Monitor) -> str | None:
    """Record a new top layer, and open it in QEMU, not yet in use; returns the name of its node.
    None if the present one is empty, and QEMU writes to it."""
    if _is_unwritten(vm) and monitor.active_node() == argv.node_name(vm.machine.chain[-1]):
        vm.write(replace(vm.record, task=Task.SNAPSHOT, starting=None), durable=False)
        return None
    _grow_chain(vm, Task.SNAPSHOT)
    return _attach_overlay(vm, monitor)


def _is_unwritten(vm: Vm) -> bool:
    return vm.host.layers.is_empty(vm.machine.chain[-1], vm.machine.disk_bytes)


def _stop(vm: Vm, monitor: Monitor, overlay: str | None) -> tuple[str | None, float]:
    """Let the guest stand still; returns the overlay, and since when it does. QEMU has written
    everything by then, so it is seen whether a top layer that was empty still is; if not, the guest
    goes on until there is a new one."""
    began = _stand_still(monitor)
    if overlay is None and not _is_unwritten(vm):
        monitor.cont()
        overlay = _new_overlay(vm, monitor)
        began = _stand_still(monitor)
    return overlay, began


def _stand_still(monitor: Monitor) -> float:
    began = time.monotonic()
    monitor.run("stop")
    fault("snapshot.stopped")
    return began


def _capture_standing(vm: Vm, monitor: Monitor, overlay: str | None,
                      background: ThreadPoolExecutor, memory: RamCapture, state: Path) -> None:
    """Let disk, device state and memory become those of the instant in which the guest stands; then
    it goes on."""
    if overlay is not None:
        below = argv.node_name(vm.machine.chain[-2])
        monitor.run("blockdev-snapshot", {"node": below, "overlay": overlay})
    fault("snapshot.switched")
    copied = background.submit(memory.finish)
    monitor.save(state)
    fault("snapshot.state_written")
    copied.result()
    fault("snapshot.ram_copied")
    monitor.cont()


def _capture_asleep(vm: Vm, directory: Path) -> None:
    """Copy memory and device state, unless the machine ended by itself: then its disk is all there
    is."""
    if vm.is_kept:
        kept_machines.end(vm)  # it does not know the layer that its disk may get now
    if vm.rundir.is_alive():
        raise DriverError(f"{vm.sandbox_id} is neither running nor asleep")
    top, disk_bytes = vm.machine.chain[-1], vm.machine.disk_bytes
    vm.host.layers.renew_lost(vm.machine.chain, disk_bytes)  # else it would be frozen as it is
    if not vm.host.layers.is_empty(top, disk_bytes):
        _grow_chain(vm, vm.record.task)
    if ram_is_whole(vm.record):
        for name in _MEMORY:
            _copy_ram(vm.host, vm.rundir.path / name, directory / name)


def _grow_chain(vm: Vm, task: Task | None) -> None:
    """Put a new, empty layer on top of the recorded chain."""
    layers = vm.host.layers
    with layers.referring():
        layer = layers.new_reference()
        layers.create(layer, vm.machine.disk_bytes)
        sync_file(layers.path(layer))
        machine = replace(vm.machine, chain=(*vm.machine.chain, layer))
        vm.write(replace(vm.record, machine=machine, task=task, starting=None), durable=True)


def _attach_overlay(vm: Vm, monitor: Monitor) -> str:
    """Open the top layer in QEMU, not yet in use; returns the name of its node."""
    reference = vm.machine.chain[-1]
    descriptor = vm.host.layers.open(reference, writable=True)
    try:
        fd_set = monitor.run("add-fd", descriptor=descriptor)["fdset-id"]
    finally:
        os.close(descriptor)
    name = argv.node_name(reference)
    monitor.run("blockdev-add",
                argv.layer_node("qcow2", name, fd_set, below=None, writable=True))
    return name


def _copy_ram(host: Host, source: Path, target: Path) -> None:
    with _opened(source, target) as (reader, writer):
        sparse.clone(reader, writer, host.disk_floor.check)


@contextmanager
def _ram_capture(vm: Vm, target: Path) -> Iterator[RamCapture]:
    """Of its memory, to a copy of its warm image's that was made ahead, if there is one: most of a
    guest's memory is as it was then."""
    vm.host.spares.take(vm.host.warm_image_of(vm.machine), target)
    with (
        _opened(vm.rundir.ram, target) as (reader, writer),
        RamCapture(reader, writer, vm.host.disk_floor.check) as copy,
    ):
        yield copy


@contextmanager
def _opened(source: Path, target: Path) -> Iterator[tuple[int, int]]:
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield reader, writer
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _complete(vm: Vm, directory: Path, snapshot_id: str, pause_ms: float,
              lends_in: str | None) -> SnapshotRecord:
    host, chain = vm.host, vm.machine.chain[:-1]
    own = [reference for reference in chain if reference.startswith("layer:")]
    written = [host.layers.path(layer) for layer in own
               if not host.layers.is_frozen(layer)
               or lends_in is None and not _is_held_by_others(host, layer, snapshot_id)]
    for reference in own:
        host.layers.freeze(reference)
    memory = [directory / name for name in _MEMORY if (directory / name).exists()]
    if lends_in is None:
        for path in memory:
            sync_file(path)
    fault("snapshot.flushed")
    with host.layers.referring():
        # a removal of the sandbox, which waits for nobody, may have taken them since
        host.layers.check_there(chain)
        host.layers.notes.add(chain, vm.rundir.path)
        host.layers.notes.add(chain, host.snapshots / snapshot_id)
        size_bytes = sum(map(occupied_bytes, [*memory, *written]))
        complete = SnapshotRecord(snapshot_id, replace(vm.machine, chain=chain), size_bytes,
                                  pause_ms, bool(memory), lends_in)
        commit(host, directory, complete)
    fault("snapshot.complete")
    return complete


def _is_held_by_others(host: Host, layer: str, snapshot_id: str) -> bool:
    """Whether a frozen layer counts as another snapshot's. Looks at all that hold it, which may be
    many, so it is not asked for the capture of a fork, which goes soon."""
    return any(kind == host.snapshots.name and name != snapshot_id
               for kind, name in host.layers.notes.holders(layer))


def commit(host: Host, directory: Path, complete: SnapshotRecord) -> None:
    """Let what was made in the working directory be the snapshot, its record last."""
    write_json(directory / "snapshot.json", complete.to_json())
    os.rename(directory, host.snapshots / complete.snapshot_id)
    sync_directory(host.snapshots)
