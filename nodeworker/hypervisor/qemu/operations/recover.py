"""Bring a live VM whose operation died back to executing, and its record back to the truth."""
from dataclasses import replace

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.records import SandboxRecord
from nodeworker.hypervisor.qemu.rundir import RunDir


def recover(host: Host, rundir: RunDir, record: SandboxRecord) -> SandboxRecord:
    """Make the guest execute and the recorded chain the one QEMU writes to; the task stays recorded
    for the caller.

    Raises DriverError if the monitor does not answer. Only for records in phase RUNNING.
    """
    try:
        with Monitor.of(rundir) as monitor:
            record = settle_chain(host, rundir, record, monitor)
            monitor.run("cont")
    except QmpError as error:
        raise DriverError(f"recovering {record.sandbox_id}: {error}") from error
    return record


def settle_chain(host: Host, rundir: RunDir, record: SandboxRecord,
                 monitor: Monitor) -> SandboxRecord:
    """A snapshot records its new layer before QEMU switches to it: if QEMU never did, take the
    layer off again."""
    chain = record.machine.chain
    if monitor.active_node() == argv.node_name(chain[-1]):
        return record
    settled = replace(record, machine=replace(record.machine, chain=chain[:-1]))
    rundir.write(settled, durable=True)
    host.layers.path(chain[-1]).unlink(missing_ok=True)
    return settled
