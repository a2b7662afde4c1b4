"""Slow down what guests write while the host's disk is about to run full.

Below the free-space floor nothing new begins, but what runs goes on writing, and others live on the
same disk: databases, logs, the records of this driver. So below half of the floor each guest writes
slowly, until all of the floor is free again. That leaves minutes, in which somebody is told; at
zero a guest that writes stands still (`paused`). Reading and memory are as fast as ever.
"""
import logging
from pathlib import Path

from nodeworker.disks.space import MIB
from nodeworker.hypervisor.driver import DriverError, VmBusy, VmNotFound, VmState
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.vm import locked_vm

SLOW_BYTES_PER_S = 256 * 1024
_UNLIMITED = 0
_log = logging.getLogger(__name__)


def pace_writes(host: Host) -> bool | None:
    """See Driver.pace_writes."""
    slow, was_slow = _wants_slow(host), _mark(host).exists()
    if slow:
        _mark(host).touch()
    if slow or was_slow:
        # each time, for a machine may have been woken since
        done = [_pace(host, path.name, SLOW_BYTES_PER_S if slow else _UNLIMITED)
                for path in host.sandboxes.iterdir()]
        if not slow and all(done):
            _mark(host).unlink(missing_ok=True)
    return None if slow == was_slow else slow


def _wants_slow(host: Host) -> bool:
    free, floor = host.space().free_bytes, host.settings.disk_floor_mb * MIB
    return free < floor / 2 or free < floor and _mark(host).exists()


def _mark(host: Host) -> Path:
    """The file that is there while writes are slow: the next worker must know."""
    return host.settings.node_dir / "writes-are-slow"


def _pace(host: Host, sandbox_id: str, bytes_per_s: int) -> bool:
    """True if the machine, should it run, writes at this pace now."""
    try:
        with locked_vm(host, sandbox_id) as vm:
            if vm.rundir.inspect() is not VmState.RUNNING:
                return True
            with vm.monitor("pacing the writes of") as monitor:
                monitor.run("block_set_io_throttle", {
                    "id": monitor.run("query-block")[0]["qdev"], "bps": 0, "bps_rd": 0,
                    "bps_wr": bytes_per_s, "iops": 0, "iops_rd": 0, "iops_wr": 0
                })
    except VmNotFound:
        return True
    except (VmBusy, DriverError) as error:
        _log.warning("the writes of %s are not paced: %s", sandbox_id, error)
        return False
    return True
