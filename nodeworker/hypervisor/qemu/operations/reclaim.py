"""Start-up reclaim of a node: what belongs to no sandbox goes, what live VMs need is made again.
Stated order:

1. Packet policy and forwarding switch (a guest must never be without them). 2. Sandboxes that were
never completely created, half-made snapshots and templates, unless somebody is at work on them. 3.
Processes, cgroups, slots, namespaces and forwarded ports without a live sandbox. 4. Forwarded ports
of live sandboxes; disk layers nobody refers to; trash; the pool of ready slots.
"""
import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nodeworker.disks.durable import empty_trash, remove_tree
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import VmBusy
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.bake import discard
from nodeworker.hypervisor.qemu.operations.destroy import destroy
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.rundir import RunDir

_log = logging.getLogger(__name__)


def reclaim(host: Host) -> None:
    """See Driver.reclaim."""
    host.network.reload()
    _remove_half_made(host)
    _end_strays(host)
    host.network.slots.reclaim(partial(_is_live, host))
    _restore_forwards(host)
    host.collect_layers()
    host.spares.reclaim({path.name for path in host.templates.iterdir()})
    empty_trash(host.trash)
    host.network.slots.fill()


def _remove_half_made(host: Host) -> None:
    for path in host.sandboxes.iterdir():
        if not host.rundir(path.name).was_created():
            try:
                destroy(host, path.name)
            except VmBusy:
                _log.info("sandbox %s is being worked on", path.name)
    for path in host.snapshots.glob("*.tmp"):
        with _nobody_at_work(path / "lock") as is_ours:
            if is_ours:
                remove_tree(path, host.trash)
    for path in host.templates.glob("*.tmp"):
        with _nobody_at_work(path.with_suffix(".lock")) as is_ours:
            if is_ours:
                discard(host, RunDir(path))


@contextmanager
def _nobody_at_work(lock: Path) -> Iterator[bool]:
    """True, and the lock held in the block, if no process holds it."""
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _is_live(host: Host, name: str) -> bool:
    """True while the owner of a slot or cgroup has a process or an operation at work, or is a
    template being baked.

    Asked about a name after it was found: an operation that made it since then holds its lock.
    """
    if host.rundir(name).is_busy_or_alive():
        return True
    return name.endswith(".tmp") and locks.is_locked((host.templates / name).with_suffix(".lock"))


def _end_strays(host: Host) -> None:
    for name in [name for name in host.cgroups.names() if not _is_live(host, name)]:
        for pid in host.cgroups.pids(name):
            _log.warning("ending process %s of %s, which does not exist any more", pid, name)
            os.kill(pid, signal.SIGKILL)
        host.cgroups.remove(name)


def _restore_forwards(host: Host) -> None:
    forwarded = {target for target, _ in host.network.forwards.current().values()}
    # looked at last: a slot is claimed before its ports are forwarded
    owners = host.network.slots.owners()
    in_use = {host.network.slots.slot(number).address for number in owners.values()}
    for address in forwarded - in_use:
        host.network.forwards.remove(address)
    for name, number in owners.items():
        record = host.rundir(name).find_record()
        if record is not None and record.phase is Phase.RUNNING and record.task is None:
            host.network.forward(host.network.slots.slot(number), record.host_ports(), fresh=False)
