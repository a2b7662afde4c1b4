"""Room on the disk for the memory of machines, RAM being a file.

1. The memory that a node has is reserved whole, before a guest runs: such a guest can write to all
of its own, whatever fills the disk meanwhile. 2. Of what a node promises beyond that, each machine
has a share for sure (`ram_shares`), and takes more of what is free. 3. A QEMU that finds no room
for a page dies of SIGBUS, so machines are stopped before that (`hold_growing`): once less than half
of the free-space floor is left beside the shares, those that have more than theirs; once less than
a quarter of it is left at all, every one whose memory is not whole. `operations/paused.py` lets
them go on when all of the floor is free again. Nothing is written down of that: a machine that runs
and stands still without an operation was stopped here.
"""
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nodeworker.disks.reserve_blocks import MIB, space_of
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import DriverError, NoDiskSpace, VmState
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
# Half a second later it is asked again; meanwhile nobody sees what else begins to grow.
_ANSWER_LIMIT_S = 1.0


def reserve(vm: Vm) -> None:
    """Make sure that the guest can write to its memory: to all of it while the node has so much,
    else to its share. Raises NoDiskSpace."""
    mem_mb, shares = vm.machine.shape.mem_mb, vm.host.ram_shares
    whole = may_be_whole(vm.host, mem_mb, vm.sandbox_id)
    wanted = mem_mb * MIB if whole else shares.share_bytes(mem_mb)
    needed = wanted - occupied_bytes(vm.rundir.ram)
    free = _free_bytes(vm.host) - shares.unused_bytes(besides=vm.sandbox_id)
    if needed > max(free, 0):
        raise NoDiskSpace(f"no room for the memory of {vm.sandbox_id}: {needed // MIB} MB are"
                          f" needed, {max(free, 0) // MIB} MB are free")
    if whole:
        vm.rundir.reserve_ram()


def may_be_whole(host: Host, mem_mb: int, besides: str = "") -> bool:
    """True if the node has so much memory beside what every other machine than `besides` has
    whole."""
    shares = host.ram_shares
    if shares.all_is_whole:
        return True
    has = host_memory.promised_mb(host.settings) * MIB
    return shares.whole_bytes(besides) + mem_mb * MIB <= has


def check_create(host: Host, mem_mb: int) -> None:
    """Raises NoDiskSpace unless the free-space floor is left beside what a new machine of so much
    memory has of the disk for sure."""
    whole = may_be_whole(host, mem_mb)
    host.disk_floor.check(mem_mb * MIB if whole else host.ram_shares.share_bytes(mem_mb))


def hold_growing(host: Host) -> list[str]:
    """See Driver.hold_growing."""
    if host.ram_shares.all_is_whole:
        return []
    floor = host.disk_floor.bytes
    last = _free_bytes(host) < floor / 4
    if not last and host.disk_floor.space().free_bytes >= floor / 2:
        return []
    growing = [ram.owner for ram in host.ram_shares.files()
               if not ram.is_whole and (last or ram.occupied > ram.share)]
    # All at once: a monitor that is silent, as a hostile guest can have it, holds up no other.
    with ThreadPoolExecutor(max_workers=max(len(growing), 1)) as at_once:
        held = at_once.map(partial(_hold, host), growing)
        return [owner for owner, now in zip(growing, held) if now]


def _free_bytes(host: Host) -> int:
    """What is really free, for machines to write to."""
    return space_of(host.settings.node_dir).free_bytes


def _hold(host: Host, sandbox_id: str) -> bool:
    """True if it was stopped now. What an operation works on is looked at the next time."""
    rundir = host.rundir(sandbox_id)
    with rundir.nobody_at_work() as is_ours:
        if not is_ours or rundir.inspect() is not VmState.RUNNING:
            return False
        was_told = False
        try:
            with Vm(host, rundir).monitor("holding", within_s=_ANSWER_LIMIT_S) as monitor:
                if monitor.run("query-status")["status"] == "running":
                    was_told = True
                    monitor.run("stop")
        except DriverError as error:
            if not was_told:  # it stands still at once, and answers when its disk is flushed
                _log.warning("%s could not be held although the disk is almost full: %s",
                             sandbox_id, error)
    return was_told
