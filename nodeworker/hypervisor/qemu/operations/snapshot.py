"""Capture a running or saved sandbox: disk and memory of one instant, while the sandbox stays what
it was.

Of a running one: 1. A new overlay is made and recorded as the sandbox's own (an empty layer on top
changes nothing, whenever we die). 2. `stop`; QEMU switches to the overlay; the layer below is
frozen from now on. 3. Device state is written while RAM is copied; `cont`. Only this is the pause.
4. Flush, hash the layers, and rename the directory into its final name: the commit point.
"""
import fcntl
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nodeworker.disks import sparse
from nodeworker.disks.durable import read_json, remove_tree, sync_directory, sync_file, write_json
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, SnapshotFacts, VmNotFound
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import recover, settle_chain
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, SnapshotRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, ram_is_whole


def snapshot(host: Host, sandbox_id: str, snapshot_id: str) -> SnapshotFacts:
    """See Driver.snapshot."""
    known = find_snapshot(host, snapshot_id)
    if known is not None:
        return facts(known)
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation(), _making(host, snapshot_id) as directory:
            record = rundir.find_record()
            if record is None or record.task is Task.CREATE:
                raise VmNotFound(f"{sandbox_id} was never completely created here")
            if rundir.is_alive() and record.phase is Phase.RUNNING:
                record, pause_ms = _capture_running(host, rundir, record, directory)
            else:
                record, pause_ms = _capture_saved(host, rundir, record, directory)
            write_json(directory / "token", {"token": rundir.tokens()[0]})
            return facts(_complete(host, record, directory, snapshot_id, pause_ms))
    except FileNotFoundError as error:
        if rundir.path.exists():
            raise
        raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error


def find_snapshot(host: Host, snapshot_id: str) -> SnapshotRecord | None:
    """The record of a complete snapshot."""
    record = read_json(host.snapshots / snapshot_id / "snapshot.json")
    return SnapshotRecord.from_json(record) if record else None


def facts(record: SnapshotRecord) -> SnapshotFacts:
    """What callers may know of a snapshot."""
    return SnapshotFacts(record.snapshot_id, record.rootfs_sha, record.size_bytes, record.pause_ms)


@contextmanager
def _making(host: Host, snapshot_id: str) -> Iterator[Path]:
    """A locked working directory `<id>.tmp`; whatever an earlier attempt left in it is removed, and
    what this one leaves."""
    directory = host.snapshots / f"{snapshot_id}.tmp"
    remove_tree(directory, host.trash)
    directory.mkdir(mode=0o700)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield directory
        finally:
            remove_tree(directory, host.trash)


def _capture_running(host: Host, rundir: RunDir, record: SandboxRecord,
                     directory: Path) -> tuple[SandboxRecord, float]:
    if record.task is not None:
        record = recover(host, rundir, record)
    fault("snapshot.begun")
    try:
        with Monitor.of(rundir) as monitor, ThreadPoolExecutor(max_workers=1) as background:
            try:
                record = flatten.settle(rundir, record, monitor)
                record = _grow_chain(host, rundir, record, Task.SNAPSHOT)
                overlay = _attach_overlay(host, record, monitor)
                below = argv.node_name(record.machine.chain[-2])
                fault("snapshot.layer_recorded")
                began = time.monotonic()
                monitor.run("stop")
                fault("snapshot.stopped")
                monitor.run("blockdev-snapshot", {"node": below, "overlay": overlay})
                fault("snapshot.switched")
                copied = background.submit(_copy_ram, rundir.ram, directory / "ram")
                monitor.save(directory / "state")
                fault("snapshot.state_written")
                copied.result()
                fault("snapshot.ram_copied")
                monitor.run("cont")
                pause_ms = (time.monotonic() - began) * 1000
                flatten.begin(host, record, monitor)
            except Exception:
                record = settle_chain(host, rundir, record, monitor)
                monitor.run("cont")
                rundir.write(replace(record, task=None), durable=False)
                raise
    except QmpError as error:
        raise DriverError(f"snapshot of {record.sandbox_id}: {error}") from error
    record = rundir.write(replace(record, task=None), durable=False)
    fault("snapshot.resumed")
    return record, pause_ms


def _capture_saved(host: Host, rundir: RunDir, record: SandboxRecord,
                   directory: Path) -> tuple[SandboxRecord, float]:
    if rundir.is_alive() or not ram_is_whole(record):
        raise DriverError(f"{record.sandbox_id} is neither running nor saved")
    if not host.layers.is_empty(record.machine.chain[-1], record.machine.disk_bytes):
        record = _grow_chain(host, rundir, record, record.task)
    for name in ("ram", "state"):
        _copy_ram(rundir.path / name, directory / name)
    return record, 0.0


def _grow_chain(host: Host, rundir: RunDir, record: SandboxRecord,
                task: Task | None) -> SandboxRecord:
    """Put a new, empty layer on top of the recorded chain."""
    with host.layers.referring():
        layer = host.layers.new_reference()
        host.layers.create(layer, record.machine.disk_bytes)
        sync_file(host.layers.path(layer))
        machine = replace(record.machine, chain=(*record.machine.chain, layer))
        return rundir.write(replace(record, machine=machine, task=task), durable=True)


def _attach_overlay(host: Host, record: SandboxRecord, monitor: Monitor) -> str:
    """Open the top layer in QEMU, not yet in use; returns the name of its node."""
    reference = record.machine.chain[-1]
    descriptor = os.open(host.layers.path(reference), os.O_RDWR | os.O_CLOEXEC)
    try:
        fd_set = monitor.run("add-fd", descriptor=descriptor)["fdset-id"]
    finally:
        os.close(descriptor)
    name = argv.node_name(reference)
    for node in argv.layer_nodes("qcow2", name, fd_set, below=None, writable=True):
        monitor.run("blockdev-add", node)
    return name


def _copy_ram(source: Path, target: Path) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    writer = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        sparse.clone(reader, writer)
    finally:
        os.close(reader)
        os.close(writer)


def _complete(host: Host, record: SandboxRecord, directory: Path, snapshot_id: str,
              pause_ms: float) -> SnapshotRecord:
    chain = record.machine.chain[:-1]
    for reference in chain:
        if reference.startswith("layer:"):
            host.layers.freeze(reference)
    for name in ("ram", "state"):
        sync_file(directory / name)
    fault("snapshot.flushed")
    files = [
        directory / "ram", directory / "state", *(host.layers.path(layer) for layer in chain[-1:])
    ]
    complete = SnapshotRecord(
        snapshot_id, replace(record.machine, chain=chain), host.layers.chain_sha(chain),
        sum(path.stat().st_blocks * 512 for path in files), pause_ms)
    write_json(directory / "snapshot.json", complete.to_json())
    os.rename(directory, host.snapshots / snapshot_id)
    sync_directory(host.snapshots)
    fault("snapshot.complete")
    return complete
