"""What a caller is told about a snapshot: a frozen record, free of secrets."""
from dataclasses import dataclass
from datetime import datetime

from models.snapshots import Snapshot


@dataclass(frozen=True)
class SnapshotView:
    """The contract's Snapshot."""

    id: str
    node_id: str
    kind: str
    rootfs_sha: str
    size_bytes: int
    tarball_size_bytes: int
    source_sandbox_id: str
    uploaded_to_store: bool
    created_at: datetime


def snapshot_view(row: Snapshot) -> SnapshotView:
    """The view of a snapshot row."""
    return SnapshotView(
        id=row.id,
        node_id=row.node_id,
        kind=row.kind,
        rootfs_sha=row.rootfs_sha,
        size_bytes=row.size_bytes,
        tarball_size_bytes=row.tarball_size_bytes,
        source_sandbox_id=row.source_sandbox_id,
        uploaded_to_store=row.uploaded_to_store,
        created_at=row.created_at,
    )
