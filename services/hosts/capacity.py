"""What is short when no node takes a machine: too large for ever, or no room right now."""
from dataclasses import dataclass

from services.errors import Unavailable

_SOON_S = 5
_LATER_S = 30


@dataclass(frozen=True)
class DiskRoom:
    """The disk of a node (MiB): `free_mb` less what boots under way will take, and `floor_mb` that
    stay free."""

    free_mb: int
    floor_mb: int

    def refusal(self, node_id: str, mem_mb: int = 0) -> Unavailable | None:
        """The error for something that takes `mem_mb` of it at once, the memory of a machine being
        a file; None if there is room."""
        if self.free_mb - mem_mb >= self.floor_mb:
            return None
        needed = f"{mem_mb} MB are needed and " if mem_mb else ""
        return Unavailable(
            f"Node {node_id} is short of disk space: {max(self.free_mb, 0)} MB are free,"
            f" {needed}{self.floor_mb} MB are kept free.", retry_after_s=_LATER_S)


@dataclass(frozen=True)
class Room:
    """What a live node may promise in all, and what of it is free (below nothing after a change of
    overcommit). `disk` is None where it does not matter, or the node does not tell."""

    node_id: str
    accepting: bool
    vcpus: int
    mem_mb: int
    free_vcpus: int
    free_mem_mb: int
    disk: DiskRoom | None = None

    def could_hold(self, vcpus: int, mem_mb: int) -> bool:
        """True if the machine fits the node when nothing else is on it."""
        return vcpus <= self.vcpus and mem_mb <= self.mem_mb

    def can_hold(self, vcpus: int, mem_mb: int) -> bool:
        """True if the machine fits the node beside what is on it now."""
        has_disk = self.disk is None or self.disk.refusal(self.node_id, mem_mb) is None
        return vcpus <= self.free_vcpus and mem_mb <= self.free_mem_mb and has_disk


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
    open_ones = [room for room in possible if room.accepting]
    if not open_ones:
        closed = f"Node {pinned} takes" if pinned else "The nodes that could hold it take"
        return Unavailable(f"{closed} no sandboxes at present; {machine} are needed.",
                           retry_after_s=_LATER_S)
    best = min(
        open_ones,
        key=lambda room: (max(mem_mb - room.free_mem_mb, 0), max(vcpus - room.free_vcpus, 0)),
    )
    if vcpus <= best.free_vcpus and mem_mb <= best.free_mem_mb and best.disk is not None:
        full = best.disk.refusal(best.node_id, mem_mb)
        if full is not None:
            return full
    return Unavailable(
        f"There is no room for {machine} right now: node {best.node_id} has"
        f" {_cpus(max(best.free_vcpus, 0))} and {max(best.free_mem_mb, 0)} MB free.",
        retry_after_s=_SOON_S,
    )


def _short(vcpus: int, mem_mb: int) -> str:
    missing = [_cpus(vcpus)] * (vcpus > 0) + [f"{mem_mb} MB of memory"] * (mem_mb > 0)
    return f"{' and '.join(missing)} {'is' if missing == ['1 vCPU'] else 'are'}"


def _cpus(count: int) -> str:
    return f"{count} vCPU" if count == 1 else f"{count} vCPUs"
