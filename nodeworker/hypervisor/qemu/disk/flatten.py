"""Keep disk chains short: what lies between the warm image and a live sandbox's top layer is
copied into the top layer.

QEMU does it while the guest runs (`block-stream`). At every instant the long and the short chain
read the same bytes in QEMU; in the files they do once it has flushed, since it remembers for a
while where it has copied something to. So the record is shortened after a flush, whenever the
sandbox is next worked on, and a crash needs no repair. No backing file name is written into the
layer, as nowhere else.

A capture breaks off the copy that is under way, whose work begins anew after it. So that captures
in quick succession, or forks of forks, do not lengthen a chain for ever, no capture is made of one
that is twice as long as the setting allows before its copy has ended.
"""
import logging
import time
from contextlib import suppress
from dataclasses import replace

from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
_JOB = "flatten"
_BYTES_PER_S = 64 * 1024 * 1024
_CANCEL_LIMIT_S = 20.0
# How long a capture waits itself for a copy to end; then its worker does something else meanwhile.
_END_LIMIT_S, _END_POLL_S = 5.0, 0.02


def begin(vm: Vm, monitor: Monitor) -> None:
    """Start copying if the sandbox has more layers of its own than the setting allows; returns at
    once."""
    if _own_layers(vm) <= vm.host.settings.chain_depth_limit:
        return
    chain = vm.machine.chain
    shared = len(vm.machine.base)
    try:
        monitor.run(
            "block-stream",
            {
                "job-id": _JOB,
                "device": argv.node_name(chain[-1]),
                "base-node": argv.node_name(chain[shared - 1]),
                "speed": _BYTES_PER_S,
                "backing-file": "",
            },
        )
    except QmpError:
        _log.exception("the disk chain of %s stays long", vm.sandbox_id)


def begin_after_start(vm: Vm) -> None:
    """Start copying if the chain that the sandbox was started with is far too long: its captures
    would have to wait. A start does not fail by it."""
    if not _is_far_too_long(vm):
        return
    try:
        with vm.monitor("flattening the disk of") as monitor:
            if not monitor.run("query-block-jobs"):
                begin(vm, monitor)
    except (DriverError, OSError):
        _log.exception("the disk chain of %s stays long", vm.sandbox_id)


def end_if_far_too_long(vm: Vm) -> None:
    """To be called before a capture: a copy of a far too long chain ends, as fast as it can, and is
    begun if there is none; one that fails keeps no capture back. Raises VmBusy while it goes on."""
    if not _is_far_too_long(vm):
        return
    deadline = time.monotonic() + _END_LIMIT_S
    with vm.monitor("flattening the disk of") as monitor:
        if not monitor.run("query-block-jobs"):
            begin(vm, monitor)
        with suppress(QmpError):  # it has just ended by itself
            monitor.run("block-job-set-speed", {"device": _JOB, "speed": 0})
        while monitor.run("query-block-jobs"):
            if time.monotonic() > deadline:
                raise VmBusy(f"the disk chain of {vm.sandbox_id} is being flattened")
            time.sleep(_END_POLL_S)


def _is_far_too_long(vm: Vm) -> bool:
    return _own_layers(vm) > 2 * vm.host.settings.chain_depth_limit


def _own_layers(vm: Vm) -> int:
    return len(vm.machine.chain) - len(vm.machine.base)


def settle(vm: Vm, monitor: Monitor) -> None:
    """End a copy that is under way and shorten the record if one has been finished; the disk is
    free for other work."""
    _cancel(monitor)
    chain = vm.machine.chain
    shared = len(vm.machine.base)
    if len(chain) - shared < 2 or monitor.depth_below_active() != shared:
        return
    if monitor.active_node() != argv.node_name(chain[-1]):
        return  # not what a copy ends with: all layers stay
    monitor.flush_disk(argv.node_name(chain[-1]))
    machine = replace(vm.machine, chain=(*chain[:shared], chain[-1]))
    vm.write(replace(vm.record, machine=machine), durable=True)
    for reference in reversed(chain[shared:-1]):
        close_layer(monitor, reference)


def close_layer(monitor: Monitor, reference: str) -> None:
    """Have QEMU close a layer that it has open and does not use; it refuses for one that it
    uses."""
    name = argv.node_name(reference)
    for node in (name, argv.file_name(name)):
        with suppress(QmpError):  # it went with the node that it was added with
            monitor.run("blockdev-del", {"node-name": node})


def _cancel(monitor: Monitor) -> None:
    deadline = time.monotonic() + _CANCEL_LIMIT_S
    while monitor.run("query-block-jobs"):
        if time.monotonic() > deadline:
            raise DriverError("the flattening of a disk chain does not end")
        try:
            monitor.run("block-job-cancel", {"device": _JOB})
        except QmpError:
            continue  # it has just ended by itself
        time.sleep(0.01)
