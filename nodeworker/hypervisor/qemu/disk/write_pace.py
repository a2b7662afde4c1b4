"""Slow down what guests write while the host's disk is about to run full.

Below the free-space floor nothing new begins, but what runs goes on writing, and others live on the
same disk: databases, logs, the records of this driver. So below half of the floor each guest writes
slowly, until all of the floor is free again. That leaves minutes, in which somebody is told; at
zero a guest that writes stands still (`paused`). Reading and memory are as fast as ever.
"""
import logging
from dataclasses import replace
from pathlib import Path

from nodeworker.hypervisor.driver import DriverError, VmBusy, VmNotFound, VmState
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.monitor import IoLimit
from nodeworker.hypervisor.qemu.process.qmp import LOOK_S
from nodeworker.hypervisor.qemu.vm import locked_vm

SLOW_BYTES_PER_S = 256 * 1024
_log = logging.getLogger(__name__)


def pace_writes(host: Host) -> bool | None:
    """See Driver.pace_writes."""
    slow, was_slow = _wants_slow(host), _mark(host).exists()
    if slow:
        _mark(host).touch()
    if slow or was_slow:
        # each time, for a machine may have been woken since
        limit = IoLimit.of(host.settings)
        if slow:
            limit = replace(limit, write_bytes_per_s=SLOW_BYTES_PER_S)
        done = [_pace(host, path.name, limit) for path in host.sandboxes.iterdir()]
        if not slow and all(done):
            _mark(host).unlink(missing_ok=True)
    return None if slow == was_slow else slow


def _wants_slow(host: Host) -> bool:
    free, floor = host.disk_floor.space().free_bytes, host.disk_floor.bytes
    return free < floor / 2 or free < floor and _mark(host).exists()


def _mark(host: Host) -> Path:
    """The file that is there while writes are slow: the next worker must know."""
    return host.settings.node_dir / "writes-are-slow"


def _pace(host: Host, sandbox_id: str, limit: IoLimit) -> bool:
    """True if the machine, should it run, writes at this pace now."""
    try:
        with locked_vm(host, sandbox_id) as vm:
            if vm.rundir.inspect() is not VmState.RUNNING:
                return True
            with vm.monitor("pacing the writes of", within_s=LOOK_S) as monitor:
                monitor.limit_io(limit)
    except VmNotFound:
        return True
    except (VmBusy, DriverError) as error:
        _log.warning("the writes of %s are not paced: %s", sandbox_id, error)
        return False
    return True
