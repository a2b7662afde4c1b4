"""Keep disk chains short: what lies between the warm image and a live sandbox's top layer is
copied into the top layer.

QEMU does it while the guest runs (`block-stream`). At every instant the long and the short chain
read the same bytes, so a crash needs no repair, and the record is shortened whenever the sandbox is
next worked on. No backing file name is written into the layer, as nowhere else.
"""
import logging
import time
from contextlib import suppress
from dataclasses import replace

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
_JOB = "flatten"
_BYTES_PER_S = 64 * 1024 * 1024
_CANCEL_LIMIT_S = 20.0


def begin(vm: Vm, monitor: Monitor) -> None:
    """Start copying if the sandbox has more layers of its own than the setting allows; returns at
    once."""
    chain = vm.machine.chain
    shared = len(vm.machine.base)
    if len(chain) - shared <= vm.host.settings.chain_depth_limit:
        return
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


def settle(vm: Vm, monitor: Monitor) -> None:
    """End a copy that is under way and shorten the record if one has been finished; the disk is
    free for other work."""
    _cancel(monitor)
    chain = vm.machine.chain
    shared = len(vm.machine.base)
    if len(chain) - shared < 2 or monitor.depth_below_active() != shared:
        return
    machine = replace(vm.machine, chain=(*chain[:shared], chain[-1]))
    vm.write(replace(vm.record, machine=machine), durable=True)
    for reference in reversed(chain[shared:-1]):
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
