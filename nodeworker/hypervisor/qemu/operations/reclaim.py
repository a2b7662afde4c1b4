"""Clean up a node when its worker starts: remove what belongs to no sandbox, make what live VMs
need again, in this order:

1. Packet policy and forwarding switch (a guest must never be without them).
2. Sandboxes that were never completely created, half-made snapshots and warm images, unless
   somebody is at work on them.
3. Processes, cgroups, slots, namespaces and forwarded ports without a live sandbox.
4. Forwarded ports of live sandboxes, resets for what still comes to those that sleep in a kept
   process; disk layers nobody refers to; trash; the pool of ready slots.

The driver then loads the packet rules inside of all slots again, which may be of an earlier code.

What workers that died have left of snapshots, of removals and of copies of a warm image's memory,
and what nobody refers to, is also removed from time to time (`collect_garbage`): a node's worker
may run for months.
"""
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nodeworker.disks.durable import empty_old_trash, empty_trash, remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.bake_warm_image import discard
from nodeworker.hypervisor.qemu.operations.delete_snapshot import finish_deletions
from nodeworker.hypervisor.qemu.operations.destroy import (
    destroy_half_made,
    end_put_aside,
    finish_removals,
)
from nodeworker.hypervisor.qemu.process import prepared_processes
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.qemu.suspended import warm_spares
from nodeworker.hypervisor.qemu.vm import Vm
from nodeworker.network.nft import NftError

_log = logging.getLogger(__name__)


def reclaim(host: Host) -> None:
    """See Driver.reclaim."""
    host.network.reload()
    _remove_half_made(host)
    warm_spares.end_surplus(host)
    prepared_processes.end_surplus(host)
    _end_strays(host)
    host.network.slots.reclaim(partial(_is_live, host))
    _restore_forwards(host)
    _remove_stale_forwards(host)
    host.collect_layers()
    _remove_useless_copies(host)
    end_put_aside(host)
    empty_trash(host.trash)
    host.network.slots.fill()


def collect_garbage(host: Host) -> None:
    """See Driver.collect_garbage."""
    _remove_half_made_snapshots(host)
    finish_removals(host)
    finish_deletions(host)
    empty_old_trash(host.trash)
    _remove_useless_copies(host)
    host.collect_layers()


def restore_network(host: Host) -> bool:
    """See Driver.restore_network."""
    lost = not host.network.is_intact()
    if lost:
        host.network.reload()
    _restore_forwards(host)
    if lost:
        _remove_stale_forwards(host)
    return lost


def _remove_half_made(host: Host) -> None:
    """What is at work is left alone. Others may begin or finish while we look, so each is decided
    on under its lock."""
    for path in host.sandboxes.iterdir():
        if not host.rundir(path.name).was_created():
            fault("reclaim.half_made_seen")
            with _stopping_nothing(path):
                destroy_half_made(host, path.name)
    _remove_half_made_snapshots(host)
    for path in host.warm_images.glob("*.tmp"):
        with (_stopping_nothing(path),
              locks.nobody_at_work(path.with_suffix(".lock")) as is_ours):
            if is_ours:
                discard(Vm(host, RunDir(path)))


def _remove_half_made_snapshots(host: Host) -> None:
    for path in host.snapshots.glob("*.tmp"):
        with _stopping_nothing(path), locks.nobody_at_work(path / "lock") as is_ours:
            if is_ours:
                remove_tree(path, host.trash)


@contextmanager
def _stopping_nothing(path: Path) -> Iterator[None]:
    """What is half made and cannot be removed keeps neither the rest nor the node from its
    start."""
    try:
        yield
    except VmBusy:
        _log.info("sandbox %s is being worked on", path.name)
    except (DriverError, NftError, OSError) as error:
        _log.error("%s is half made and cannot be removed: %s", path, error)


def _remove_useless_copies(host: Host) -> None:
    host.spares.reclaim({path.name for path in host.warm_images.iterdir()})


def _is_live(host: Host, name: str) -> bool:
    """True while the owner of a slot or cgroup, a sandbox, a spare or a process started ahead, has
    a process or an operation at work, or is a warm image being baked.

    Asked about a name after it was found: an operation that made it since then holds its lock.
    """
    directories = (host.sandboxes, host.warm, host.prepared)
    if any(RunDir(directory / name).is_busy_or_alive() for directory in directories):
        return True
    return name.endswith(".tmp") and locks.is_locked((host.warm_images / name).with_suffix(".lock"))


def _end_strays(host: Host) -> None:
    for name in [name for name in host.cgroups.names() if not _is_live(host, name)]:
        if name.endswith(".tmp"):
            with locks.nobody_at_work((host.warm_images / name).with_suffix(".lock")) as is_ours:
                if is_ours:
                    _empty_cgroup(host, name)
        else:
            _end_stray(host, host.rundir(name))


def _end_stray(host: Host, rundir: RunDir) -> None:
    """End what is left in a sandbox's cgroup without a machine; its lock keeps a wake from starting
    one meanwhile."""
    try:
        with rundir.operation(create=True):
            if rundir.is_alive():
                return
            _empty_cgroup(host, rundir.sandbox_id)
            if not rundir.was_created():
                remove_tree(rundir.path, host.trash)
    except VmBusy:
        _log.info("sandbox %s is being worked on", rundir.sandbox_id)


def _empty_cgroup(host: Host, name: str) -> None:
    for pid in host.cgroups.pids(name):
        _log.warning("ending process %s of %s, which does not exist any more", pid, name)
    host.cgroups.remove(name)


def _remove_stale_forwards(host: Host) -> None:
    forwarded = {target for target, _ in host.network.forwards.current().values()}
    # looked at last: a slot is claimed before its ports are forwarded
    owners = host.network.slots.owners()
    in_use = {host.network.slots.slot(number).address for number in owners.values()}
    for address in forwarded - in_use:
        fault("reclaim.stale_forward_seen")
        host.network.remove_stale_forwards(address)


def _restore_forwards(host: Host) -> None:
    """Forward the ports of live sandboxes that may have lost them, and let connections to those
    whose process is kept be reset again. One that is worked on, or fails, keeps no other from it
    and is tried again the next time, it alone: what is there stays."""
    waiting = host.network.may_lack_ports
    for name in sorted(waiting):
        try:
            if _restore_forward(host, name):
                waiting.discard(name)
        except Exception:
            # Whatever it was, the ports of others are gone as well.
            _log.exception("ports of sandbox %s could not be forwarded again; trying again", name)


def _restore_forward(host: Host, name: str) -> bool:
    """False if it has to be tried again: somebody is at work on the sandbox. Under its lock: once
    it is hibernated its slot may be another's."""
    rundir = host.rundir(name)
    with rundir.nobody_at_work() as is_ours:
        if not is_ours:
            # without it: a warm image in the making, or a sandbox that has just been removed
            return not rundir.path.exists()
        record, number = rundir.find_record(), host.network.slots.owners().get(name)
        if record is None or number is None:
            return True
        if record.kept_since_s is not None:
            host.network.close(name)
        if record.phase is not Phase.RUNNING:
            return True
        if record.task is not None:
            return False  # a start forwards them itself, whoever repeats anything else does not
        host.network.forward(host.network.slots.slot(number), record.host_ports(), fresh=False)
        return True
