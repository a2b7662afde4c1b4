"""What the sandboxes and snapshots of owners occupy on the nodes and in the store, as the nodes
last sampled it."""
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import peewee

from models.database import connection, database, now
from models.nodes import DiskUse
from models.row import Statement
from models.sandboxes import Sandbox
from models.snapshots import Snapshot, StoreImage
from models.states import SnapshotState
from models.users import User

SANDBOX, SNAPSHOT, NODE = "sandbox", "snapshot", "node"
_BATCH = 500
# When the node sampled last is its own row, so that sizes that stay the same are not written again.
SAMPLED = "sampled"


@dataclass(frozen=True)
class OwnerUse:
    """Bytes of one owner: sandboxes and snapshots on nodes, snapshots in the object store."""

    email: str
    sandbox_bytes: int
    snapshot_bytes: int
    store_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.sandbox_bytes + self.snapshot_bytes + self.store_bytes

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the total."""
        return asdict(self) | {"total_bytes": self.total_bytes}


@dataclass(frozen=True)
class NodeUse:
    """Bytes on one node: what its sandboxes and snapshots occupy, what else is there by name, and
    when it looked."""

    node_id: str
    sandbox_bytes: int
    snapshot_bytes: int
    other: dict[str, int]
    sampled_at: datetime | None


@dataclass(frozen=True)
class Item:
    """One sandbox or snapshot of an owner on one node."""

    kind: str
    id: str
    node_id: str
    size_bytes: int
    store_bytes: int


def record(node_id: str, sandboxes: Mapping[str, int], snapshots: Mapping[str, int],
           node: Mapping[str, int]) -> None:
    """Write what a node has sampled, in place of what it had; only what differs is written."""
    found = {(SANDBOX, key): size for key, size in sandboxes.items()}
    found |= {(SNAPSHOT, key): size for key, size in snapshots.items()}
    found |= {(NODE, key): size for key, size in node.items()} | {(NODE, SAMPLED): 0}
    present = now()
    with connection(), database.atomic():
        known = {(row.kind, row.resource_id): row.size_bytes
                 for row in DiskUse.select().where(DiskUse.node_id == node_id)}
        for kind, resource_id in known.keys() - found.keys():
            DiskUse.delete().where((DiskUse.node_id == node_id) & (DiskUse.kind == kind)
                                   & (DiskUse.resource_id == resource_id)).execute()
        changed = [{
            "node_id": node_id, "kind": kind, "resource_id": key, "size_bytes": size,
            "sampled_at": present
        }
                   for (kind, key), size in found.items()
                   if known.get((kind, key)) != size or key == SAMPLED]
        for batch in peewee.chunked(changed, _BATCH):
            _upsert(batch)


def _upsert(rows: Iterable[dict[str, Any]]) -> None:
    DiskUse.insert_many(list(rows)).on_conflict(
        conflict_target=[DiskUse.node_id, DiskUse.kind, DiskUse.resource_id],
        preserve=[DiskUse.size_bytes, DiskUse.sampled_at],
    ).execute()


def by_owner() -> list[OwnerUse]:
    """Every owner with anything, the largest first."""
    with connection():
        on_nodes = {SANDBOX: _sums(SANDBOX, Sandbox), SNAPSHOT: _sums(SNAPSHOT, Snapshot)}
        stored = dict(
            Snapshot.select(Snapshot.owner, peewee.fn.SUM(Snapshot.tarball_size_bytes))
            .where(_stored()).group_by(Snapshot.owner).tuples()
        )
        owners = on_nodes[SANDBOX].keys() | on_nodes[SNAPSHOT].keys() | stored.keys()
        emails = dict(User.select(User.id, User.email).where(User.id.in_(list(owners))).tuples())
    uses = [
        OwnerUse(emails[each], int(on_nodes[SANDBOX].get(each, 0)),
                 int(on_nodes[SNAPSHOT].get(each, 0)), int(stored.get(each, 0))) for each in owners
    ]
    return sorted(uses, key=lambda use: (-use.total_bytes, use.email))


def _sums(kind: str, model: Any) -> dict[str, int]:
    query = (
        DiskUse.select(model.owner, peewee.fn.SUM(DiskUse.size_bytes))
        .join(model, on=(model.id == DiskUse.resource_id))
        .where(DiskUse.kind == kind)
        .group_by(model.owner)
    )
    return dict(query.tuples())


def _stored() -> Any:
    return Snapshot.uploaded_to_store & Snapshot.state.in_(
        (SnapshotState.READY, SnapshotState.DELETING))


def bytes_of(owner_id: str) -> int:
    """What one owner has on nodes and in the store, as last sampled."""
    found = _BYTES_OF.find(owner_id)
    return sum(int(each or 0) for each in (found.sandboxes, found.snapshots, found.stored))


def _sums_of(owner_id: Any) -> Any:
    sandboxes, snapshots = (
        DiskUse.select(peewee.fn.SUM(DiskUse.size_bytes))
        .join(model, on=(model.id == DiskUse.resource_id))
        .where((DiskUse.kind == kind) & (model.owner == owner_id))
        for kind, model in ((SANDBOX, Sandbox), (SNAPSHOT, Snapshot))
    )
    stored = Snapshot.select(peewee.fn.SUM(Snapshot.tarball_size_bytes)).where(
        _stored() & (Snapshot.owner == owner_id))
    named = (sandboxes.alias("sandboxes"), snapshots.alias("snapshots"), stored.alias("stored"))
    return peewee.Select(columns=named).bind(database)


# Every create asks.
_BYTES_OF = Statement(DiskUse, _sums_of)


def items_of(owner: User) -> list[Item]:
    """What one owner has, the largest first."""
    with connection():
        found = [
            Item(kind, row.resource_id, row.node_id, row.size_bytes, 0)
            for kind, model in ((SANDBOX, Sandbox), (SNAPSHOT, Snapshot))
            for row in DiskUse.select(DiskUse).join(model, on=(model.id == DiskUse.resource_id))
            .where((DiskUse.kind == kind) & (model.owner == owner.id))
        ]
        stored = {
            row.id: row for row in Snapshot.select().where((Snapshot.owner == owner.id) & _stored())
        }
    sizes = {(each.kind, each.id): each for each in found}
    for key, row in stored.items():
        here = sizes.get((SNAPSHOT, key), Item(SNAPSHOT, key, row.node_id, 0, 0))
        sizes[SNAPSHOT, key] = Item(SNAPSHOT, key, here.node_id, here.size_bytes,
                                    row.tarball_size_bytes)
    return sorted(sizes.values(), key=lambda each: (-each.size_bytes - each.store_bytes, each.id))


def by_node() -> list[NodeUse]:
    """Every node that has sampled."""
    nodes: dict[str, dict[tuple[str, str], DiskUse]] = {}
    with connection():
        for row in DiskUse.select().order_by(DiskUse.node_id, DiskUse.resource_id):
            nodes.setdefault(row.node_id, {})[row.kind, row.resource_id] = row
    return [_node_use(node_id, rows) for node_id, rows in nodes.items()]


def _node_use(node_id: str, rows: dict[tuple[str, str], DiskUse]) -> NodeUse:
    def total(kind: str) -> int:
        return sum(row.size_bytes for (its, _), row in rows.items() if its == kind)

    other = {
        name: row.size_bytes
        for (kind, name), row in rows.items()
        if kind == NODE and name != SAMPLED
    }
    sampled = rows.get((NODE, SAMPLED))
    return NodeUse(node_id, total(SANDBOX), total(SNAPSHOT), other,
                   sampled.sampled_at if sampled else None)


def store_images() -> list[StoreImage]:
    """The images in the object store, which belong to no owner."""
    with connection():
        return list(StoreImage.select().order_by(StoreImage.key))
