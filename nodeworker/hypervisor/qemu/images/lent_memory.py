"""A transient capture is made for forks and lends the last of them its memory: that takes the
captured file itself, the others copy it.

1. The memory of such a capture of a running sandbox is not flushed, so it is of use only until the
host is started again. 2. The fork's RAM file is another name (a hard link) of the captured one. 3.
The name in the capture is removed before the guest may execute: a capture that has its memory has
it as it was captured, whoever died, and the create may be repeated. One that has it no more has a
disk to boot from.
"""
import os
from pathlib import Path

from nodeworker.hypervisor.driver import MachineSpec
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.records import SnapshotRecord
from nodeworker.hypervisor.qemu.rundir import boot_id
from nodeworker.hypervisor.qemu.vm import Vm

_NOT_FLUSHED = "its source was captured before the host was started again"
_LENT = "its memory was used by an attempt whose guest ran and ended"


def find_loss(host: Host, snapshot: SnapshotRecord) -> str:
    """Why the memory of a capture is of no use any more; empty if it is."""
    if snapshot.lends_in is None:
        return ""
    if snapshot.lends_in != boot_id():
        return _NOT_FLUSHED
    return "" if host.captured_ram(snapshot.snapshot_id).exists() else _LENT


def borrow(vm: Vm, spec: MachineSpec) -> bool:
    """Give a new sandbox the memory of the capture it is made from; False if that lends it none."""
    lent = _lent(vm.host, spec)
    if lent is None:
        return False
    vm.rundir.ram.unlink(missing_ok=True)
    os.link(lent, vm.rundir.ram)
    return True


def hand_over(host: Host, spec: MachineSpec) -> None:
    """From now on the guest may write to what it has borrowed, if it has."""
    lent = _lent(host, spec)
    if lent is not None:
        lent.unlink(missing_ok=True)


def _lent(host: Host, spec: MachineSpec) -> Path | None:
    if spec.snapshot_id is None or spec.shares_snapshot:
        return None
    snapshot = host.find_snapshot(spec.snapshot_id)
    if snapshot is None or snapshot.lends_in is None:
        return None
    return host.captured_ram(spec.snapshot_id)
