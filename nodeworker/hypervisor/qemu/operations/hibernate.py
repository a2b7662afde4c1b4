"""Hibernate a sandbox: RAM is a file already, so only the device state is written, and everything
is flushed.

1. `stop`; device state into a new file.
2. Flush disk layer, RAM and state.
3. The record says SAVED, flushed: the commit point. Before it a failure lets the guest run on;
   after it the sandbox sleeps.
4. End QEMU, free network and cgroup.
"""
import logging
import os
from dataclasses import replace

from nodeworker.disks.durable import sync_file
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmNotFound
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import settle_chain
from nodeworker.hypervisor.qemu.process.launch import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.process.start import stop
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, ram_is_whole

_log = logging.getLogger(__name__)


def hibernate(host: Host, sandbox_id: str) -> None:
    """See Driver.hibernate."""
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            record = rundir.find_record()
            if record is None or record.task is Task.CREATE:
                raise VmNotFound(f"{sandbox_id} was never completely created here")
            if record.phase is Phase.RUNNING:
                record = _save(host, rundir, record)
            _sleep(host, rundir, record)
    except FileNotFoundError as error:
        if rundir.path.exists():
            raise
        raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error


def _save(host: Host, rundir: RunDir, record: SandboxRecord) -> SandboxRecord:
    if not rundir.is_alive():
        raise DriverError(f"{record.sandbox_id} has no process and no saved memory")
    try:
        with Monitor.of(rundir) as monitor:
            try:
                if record.task is not None:
                    record = settle_chain(host, rundir, record, monitor)
                    monitor.run("cont")
                record = flatten.settle(rundir, record, monitor)
                record = rundir.write(replace(record, task=Task.HIBERNATE), durable=False)
                fault("hibernate.begun")
                monitor.run("stop")
                fault("hibernate.stopped")
                monitor.save(rundir.state)
                fault("hibernate.state_written")
                for path in (host.layers.path(record.machine.chain[-1]), rundir.ram, rundir.state):
                    sync_file(path)
                fault("hibernate.flushed")
                machine = replace(record.machine, made_on=host.tuple_for(record.machine))
                saved = replace(record, phase=Phase.SAVED, task=None, machine=machine)
                rundir.write(saved, durable=True)
            except Exception:
                _let_run(rundir, record, monitor)
                raise
    except QmpError as error:
        raise DriverError(f"hibernating {record.sandbox_id}: {error}") from error
    fault("hibernate.saved")
    return saved


def _let_run(rundir: RunDir, record: SandboxRecord, monitor: Monitor) -> None:
    """Undo: the guest executes again as if nothing had been asked."""
    try:
        monitor.run("cont")
        rundir.write(replace(record, phase=Phase.RUNNING, task=None), durable=True)
        rundir.state.unlink(missing_ok=True)
    except (QmpError, OSError):
        _log.exception("the guest of %s could not be continued", record.sandbox_id)


def _sleep(host: Host, rundir: RunDir, record: SandboxRecord) -> None:
    """End what is left of a VM whose state is saved. A wake that died before touching RAM counts as
    saved, too."""
    stop(host, rundir, record)
    os.chown(rundir.ram, 0, 0)
    if not ram_is_whole(record):
        rundir.write(replace(record, phase=Phase.RUNNING, task=None), durable=False)
        raise DriverError(f"{record.sandbox_id} lost its memory in a power failure")
    if record.phase is not Phase.SAVED or record.pid is not None:
        asleep = replace(record, phase=Phase.SAVED, task=None, pid=None, start_ticks=None,
                         slot=None)
        rundir.write(asleep, durable=record.phase is not Phase.SAVED)
    fault("hibernate.ended")
