"""A transient capture is made for one fork and lends it its memory: the fork takes the captured
file itself, not a copy.

1. The memory of such a capture of a running sandbox is not flushed, so it is of use only until the
host is started again. 2. The fork's RAM file is another name (a hard link) of the captured one. 3.
The name in the capture is removed before the guest may execute: a capture that has its memory has
it as it was captured, whoever died, and the create may be repeated. One that has it no more has a
disk to boot from.
"""
import os

from nodeworker.hypervisor.driver import LaunchSpec
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


def borrow(vm: Vm, snapshot_id: str) -> bool:
    """Give a new sandbox the memory of a capture that lends it; False if this one does not."""
    if not _lends(vm.host, snapshot_id):
        return False
    vm.rundir.ram.unlink(missing_ok=True)
    os.link(vm.host.captured_ram(snapshot_id), vm.rundir.ram)
    return True


def hand_over(host: Host, spec: LaunchSpec) -> None:
    """From now on the guest may write to what it has borrowed, if it has."""
    if spec.snapshot_id is not None and _lends(host, spec.snapshot_id):
        host.captured_ram(spec.snapshot_id).unlink(missing_ok=True)


def _lends(host: Host, snapshot_id: str) -> bool:
    snapshot = host.find_snapshot(snapshot_id)
    return snapshot is not None and snapshot.lends_in is not None
