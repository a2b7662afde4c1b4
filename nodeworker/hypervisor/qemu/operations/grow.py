"""Grow the disk of a running sandbox under its guest, which goes on using it.

1. The record gets the new size first, durably: a layer made from it later must never be smaller
   than the one below, or what the guest wrote beyond would be cut off. A larger one is harmless,
   whatever became of this call.
2. QEMU enlarges the top layer and tells the guest, also when the layer is that large already: the
   guest of a layer made in between has not been told. Nothing else changes, so a crash at any
   instant needs no repair but a repetition.
"""
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmNotFound
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import settle_chain
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir


def grow_disk(host: Host, sandbox_id: str, size_bytes: int) -> None:
    """See Driver.grow_disk."""
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            record = rundir.find_record()
            if record is None or record.task is Task.CREATE:
                raise VmNotFound(f"{sandbox_id} was never completely created here")
            if record.phase is not Phase.RUNNING or not rundir.is_alive():
                raise DriverError(f"{sandbox_id} does not run")
            _grow(host, rundir, record, size_bytes)
    except FileNotFoundError as error:
        if rundir.path.exists():
            raise
        raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error


def _grow(host: Host, rundir: RunDir, record: SandboxRecord, size_bytes: int) -> None:
    try:
        with Monitor.of(rundir) as monitor:
            if record.task is not None:
                record = settle_chain(host, rundir, record, monitor)
            record = flatten.settle(rundir, record, monitor)
            wanted = max(size_bytes, record.machine.disk_bytes)
            if record.machine.disk_bytes < wanted:
                machine = replace(record.machine, disk_bytes=wanted)
                record = rundir.write(replace(record, machine=machine), durable=True)
            fault("grow.recorded")
            monitor.run("block_resize",
                        {"node-name": argv.node_name(record.machine.chain[-1]), "size": wanted})
            fault("grow.resized")
            flatten.begin(host, record, monitor)
    except QmpError as error:
        raise DriverError(f"growing the disk of {record.sandbox_id}: {error}") from error
