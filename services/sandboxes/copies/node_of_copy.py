"""Decides which node takes a sandbox that is made from a snapshot, and claims its room there.

1. A project directory is in the store: any node takes it. 2. A captured machine is copied on the
node that holds it, since only there is its memory. 3. Once its disk is in the store, any other node
can boot a copy from that disk. One does if the caller pins it, or if the holder does not work or
takes no sandboxes. 4. Where the holder is only full, a fork
is refused: with its processes it is worth waiting for, and without them a pin gets it. A copy of a
template goes elsewhere then, too: it is what is on its disk and what its start command starts.
"""
from functools import partial

from config.settings import Settings
from models.database import database
from models.nodes import Node
from models.snapshots import Snapshot
from models.states import Lane, SnapshotKind
from services.errors import Unavailable, WrongNode
from services.hosts import placement
from services.hosts.port_room import PortsWanted

_ELSEWHERE = ("With X-Svc-Node another node makes it from the stored disk, without memory and"
              " processes.")


def claim(settings: Settings, taken: Snapshot, vcpus: int, mem_mb: int, pinned: str | None, *,
          preset: str | None = None, needs_memory: bool = True,
          ports: PortsWanted = PortsWanted()) -> Node:
    """Lock and return the node of a new sandbox made from `taken`, with room and host `ports` for
    it; in the caller's transaction. One that `needs_memory` is refused where the holder is only
    full.

    Raises WrongNode when `pinned` cannot have it, Unavailable.
    """
    claim_node = partial(placement.claim_node, settings, vcpus, mem_mb, ports=ports)
    if taken.kind == SnapshotKind.FILES_ONLY:
        return claim_node(pinned, preset=preset, lane=Lane.ARCHIVE)
    holder, in_store = str(taken.node_id), taken.uploaded_to_store and taken.image_key is not None
    if pinned not in (None, holder):
        if not in_store:
            raise WrongNode(f"Snapshot {taken.id} is on node {holder}, not on {pinned}, and not in"
                            " the object store yet.")
        return claim_node(pinned, lane=Lane.ARCHIVE)
    if pinned is not None or not in_store:
        return claim_node(holder)
    try:
        # What a refusal has locked is free again before other nodes are locked.
        with database.atomic():
            return claim_node(holder)
    except Unavailable as refused:
        if needs_memory and placement.is_open(settings, holder):
            if len(placement.list_by_load(settings)) == 1:
                raise
            raise Unavailable(f"{refused} {_ELSEWHERE}",
                              retry_after_s=refused.retry_after_s) from None
        try:
            return claim_node(image=taken.image_key, lane=Lane.ARCHIVE)
        except Unavailable:
            raise refused from None
