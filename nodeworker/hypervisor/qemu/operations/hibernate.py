"""Hibernate a sandbox: RAM is a file already, so only the device state is written, and everything
is flushed.

1. `stop`; device state into a new file.
2. Flush disk layer, RAM and state.
3. The record says SAVED, flushed: the commit point. Before it a failure lets the guest run on;
   after it the sandbox sleeps.
4. Give back the memory that the guest never used. The process is kept for a while (`kept`), or it
is ended and network and cgroup are freed.
"""
import logging
import os
from dataclasses import replace

from nodeworker.disks.durable import sync_file
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import MemoryLost
from nodeworker.hypervisor.qemu.disk import flatten
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.recover import recover
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.process.start_in_slot import stop
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.rundir import ram_is_whole
from nodeworker.hypervisor.qemu.suspended import kept_machines
from nodeworker.hypervisor.qemu.vm import Vm, created_vm

_log = logging.getLogger(__name__)


def hibernate(host: Host, sandbox_id: str) -> None:
    """See Driver.hibernate."""
    with created_vm(host, sandbox_id) as vm:
        if vm.record.phase is Phase.RUNNING:
            _save(vm)
            if kept_machines.may_keep(host):
                os.chown(vm.rundir.ram, 0, 0)
                vm.rundir.release_ram()
                kept_machines.keep(vm)
                return
        if not vm.is_kept:
            _end_saved(vm)


def _save(vm: Vm) -> None:
    if not vm.rundir.is_alive():
        raise MemoryLost(f"the process of {vm.sandbox_id} ended by itself; its disk is left")
    if vm.record.task is not None:
        recover(vm)  # if that fails the task stays, and the next one does it
    with vm.monitor("hibernating") as monitor:
        try:
            flatten.settle(vm, monitor)
            vm.write(replace(vm.record, task=Task.HIBERNATE, starting=None), durable=False)
            fault("hibernate.begun")
            monitor.run("stop")
            fault("hibernate.stopped")
            monitor.save(vm.rundir.state)
            fault("hibernate.state_written")
            disk = vm.host.layers.path(vm.machine.chain[-1])
            for path in (disk, vm.rundir.ram, vm.rundir.state):
                sync_file(path)
            fault("hibernate.flushed")
            vm.write(replace(vm.record, phase=Phase.SAVED, task=None), durable=True)
        except Exception:
            _resume_guest(vm, monitor)
            raise
    fault("hibernate.saved")


def _resume_guest(vm: Vm, monitor: Monitor) -> None:
    """Undo: the guest executes again as if nothing had been asked."""
    try:
        # First: with a record that says SAVED a guest that moves would be restored as it was.
        vm.write(replace(vm.record, phase=Phase.RUNNING, task=Task.HIBERNATE), durable=True)
        monitor.cont()
        vm.write(replace(vm.record, task=None), durable=False)
        vm.rundir.state.unlink(missing_ok=True)
    except (QmpError, OSError):
        _log.exception("the guest of %s could not be continued", vm.sandbox_id)


def _end_saved(vm: Vm) -> None:
    """End what is left of a VM whose state is saved. A wake that died before touching RAM counts as
    saved, too."""
    stop(vm)
    os.chown(vm.rundir.ram, 0, 0)
    record = vm.record
    if not ram_is_whole(record):
        vm.write(replace(record, phase=Phase.RUNNING, task=None), durable=False)
        raise MemoryLost(f"{vm.sandbox_id} lost its memory in a power failure")
    if record.phase is not Phase.SAVED or record.pid is not None:
        asleep = replace(record, phase=Phase.SAVED, task=None, pid=None, start_ticks=None,
                         slot=None)
        vm.write(asleep, durable=record.phase is not Phase.SAVED)
        vm.rundir.release_ram()
    fault("hibernate.ended")
