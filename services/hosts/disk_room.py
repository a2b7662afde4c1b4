"""Decides whether the disk of a node has room for one more machine, as the node told last: what its
floor keeps free stays free."""
import math
from dataclasses import dataclass

from services.errors import Unavailable

_RETRY_AFTER_S = 30


@dataclass(frozen=True)
class DiskRoom:
    """The disk of a node (MiB): `free_mb` less what boots under way will take, and `floor_mb` that
    stay free. The memory of a machine is a file there: that of one within `whole_mb` more is all
    kept free for it, else a `ram_share` of it."""

    free_mb: int
    floor_mb: int
    whole_mb: int = 0
    ram_share: float = 1.0

    def refusal(self, node_id: str, mem_mb: int = 0) -> Unavailable | None:
        """The error for a machine of `mem_mb`; None if there is room."""
        taken = mem_mb if mem_mb <= self.whole_mb else math.ceil(mem_mb * self.ram_share)
        if self.free_mb - taken >= self.floor_mb:
            return None
        needed = f"{taken} MB are needed and " if mem_mb else ""
        return Unavailable(
            f"Node {node_id} is short of disk space: {max(self.free_mb, 0)} MB are free,"
            f" {needed}{self.floor_mb} MB are kept free.", retry_after_s=_RETRY_AFTER_S)
