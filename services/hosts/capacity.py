"""How much a node may promise, and what is short when none takes a machine: too large for ever, or
no room right now.

What a node has, overcommit included, it may promise whatever its guests do. It may promise more,
`oversell` times that much, while they idle: of CPUs until its machines use most of them, of memory
until that is scarce. One machine is never larger than what the node has.
"""
import math
from dataclasses import dataclass, replace

from services.errors import Unavailable
from services.hosts.disk_room import DiskRoom

_SOON_S = 5
_LATER_S = 30
# The share of a node's CPUs whose use by its machines ends its promising more than it has.
_BUSY = 0.75
# Once a node has promised what it has, so large a share of that is kept free for who comes next.
_RESERVE = 0.125


@dataclass(frozen=True)
class Load:
    """What the machines of a node that run, or are about to, were promised, and how much CPU they
    use, in thousandths of one."""

    vcpus: int
    mem_mb: int
    cpu_permille: int = 0

    def is_something(self) -> bool:
        """True if it is any vCPU or memory."""
        return self.vcpus > 0 or self.mem_mb > 0

    def without(self, vcpus: int, mem_mb: int) -> "Load":
        """The same but for machines of so many vCPUs and MiB."""
        return replace(self, vcpus=self.vcpus - vcpus, mem_mb=self.mem_mb - mem_mb)


@dataclass(frozen=True)
class Promise:
    """What a node has to promise (see the module), how many times that much while its machines
    idle, and whether its memory is scarce. `cpus` is None if it does not tell."""

    vcpus: int
    mem_mb: int
    cpus: int | None = None
    oversell: float = 1.0
    memory_is_scarce: bool = False

    def most_vcpus(self, load: Load) -> int:
        """What it may promise in all at present."""
        return self.vcpus if self._is_busy(load) else self._oversold(self.vcpus)

    def most_mem_mb(self) -> int:
        """What it may promise in all at present."""
        return self.mem_mb if self.memory_is_scarce else self._oversold(self.mem_mb)

    def excess(self, load: Load) -> Load:
        """What should be given up of a load because the node has promised all that it has and can
        hardly promise more: as much as frees the reserve. Nothing where it never promises more."""
        if self.oversell <= 1:
            return Load(0, 0)
        return Load(_excess(load.vcpus, self.vcpus, self.most_vcpus(load)),
                    _excess(load.mem_mb, self.mem_mb, self.most_mem_mb()))

    def held_back(self, load: Load) -> str:
        """Why it promises nothing beyond what it has and has promised; empty where it would."""
        if self.oversell > 1 and self._is_busy(load) and load.vcpus >= self.vcpus:
            return "its machines use most of its CPUs"
        if self.oversell > 1 and self.memory_is_scarce and load.mem_mb >= self.mem_mb:
            return "its memory is scarce"
        return ""

    def _is_busy(self, load: Load) -> bool:
        return self.cpus is None or load.cpu_permille >= 1000 * _BUSY * self.cpus

    def _oversold(self, has: int) -> int:
        return int(has * max(self.oversell, 1.0))


def _excess(used: int, has: int, most: int) -> int:
    return max(used + math.ceil(_RESERVE * has) - most, 0) if used >= has else 0


@dataclass(frozen=True)
class Room:
    """What one machine may have of a live node, and what it has free (below nothing once it may
    promise less than it did), and by what it is `held_back`. `disk` is None where it does not
    matter, or the node does not tell. `port_shortage` says which host ports are missing, if any
    are."""

    node_id: str
    is_open: bool
    vcpus: int
    mem_mb: int
    free_vcpus: int
    free_mem_mb: int
    disk: DiskRoom | None = None
    held_back: str = ""
    port_shortage: str = ""

    def could_hold(self, vcpus: int, mem_mb: int) -> bool:
        """True if the machine fits the node when nothing else is on it."""
        return vcpus <= self.vcpus and mem_mb <= self.mem_mb

    def can_hold(self, vcpus: int, mem_mb: int) -> bool:
        """True if the machine fits the node beside what is on it now."""
        has_disk = self.disk is None or self.disk.refusal(self.node_id, mem_mb) is None
        return (self.could_hold(vcpus, mem_mb) and vcpus <= self.free_vcpus
                and mem_mb <= self.free_mem_mb and has_disk and not self.port_shortage)


def refusal(vcpus: int, mem_mb: int, rooms: list[Room], pinned: str | None = None) -> Unavailable:
    """The error for a machine that none of the live nodes in question took; `pinned` is the only
    node asked.

    It hints at trying again only where time may help: what is larger than every node will not fit
    later either.
    """
    machine = f"{_cpus(vcpus)} and {mem_mb} MB of memory"
    if not rooms:
        silent = f"Node {pinned} does not report" if pinned else "No VM host reports"
        return Unavailable(f"{silent} that it works at present, so nothing can be started there.",
                           retry_after_s=_SOON_S)
    possible = [room for room in rooms if room.could_hold(vcpus, mem_mb)]
    if not possible:
        nearest = min(
            rooms, key=lambda room: (max(mem_mb - room.mem_mb, 0), max(vcpus - room.vcpus, 0))
        )
        who = f"node {pinned}" if pinned else "the largest node here"
        return Unavailable(
            f"A machine of {machine} is too large: {who} may promise {_cpus(nearest.vcpus)} and"
            f" {nearest.mem_mb} MB, so {_short(vcpus - nearest.vcpus, mem_mb - nearest.mem_mb)}"
            " short."
        )
    open_ones = [room for room in possible if room.is_open]
    if not open_ones:
        closed = f"Node {pinned} takes" if pinned else "The nodes that could hold it take"
        return Unavailable(f"{closed} no sandboxes at present; {machine} are needed.",
                           retry_after_s=_LATER_S)
    best = min(
        open_ones,
        key=lambda room: (max(mem_mb - room.free_mem_mb, 0), max(vcpus - room.free_vcpus, 0)),
    )
    if vcpus <= best.free_vcpus and mem_mb <= best.free_mem_mb:
        full = best.disk.refusal(best.node_id, mem_mb) if best.disk is not None else None
        if full is not None:
            return full
        if best.port_shortage:
            return Unavailable(best.port_shortage, retry_after_s=_LATER_S)
    because = f" because {best.held_back}" if best.held_back else ""
    return Unavailable(
        f"There is no room for {machine} right now: node {best.node_id} has"
        f" {_cpus(max(best.free_vcpus, 0))} and {max(best.free_mem_mb, 0)} MB free{because}.",
        retry_after_s=_SOON_S,
    )


def _short(vcpus: int, mem_mb: int) -> str:
    missing = [_cpus(vcpus)] * (vcpus > 0) + [f"{mem_mb} MB of memory"] * (mem_mb > 0)
    return f"{' and '.join(missing)} {'is' if missing == ['1 vCPU'] else 'are'}"


def _cpus(count: int) -> str:
    return f"{count} vCPU" if count == 1 else f"{count} vCPUs"
