"""The lock of a snapshot on this host: one worker at a time uploads it, fetches its disk, deletes
it or removes its files. The kernel frees it if its holder dies."""
from collections.abc import Iterator
from contextlib import contextmanager

from nodeworker.hypervisor import locks
from nodeworker.wiring import NodeDeps


@contextmanager
def snapshot_lock(deps: NodeDeps, snapshot_id: str) -> Iterator[None]:
    """Held while the files that this host has of a snapshot, or the objects that the store has of
    it, are added to, carried away or removed. Raises VmBusy."""
    path = deps.settings.node_dir / "uploads" / f"{snapshot_id}.lock"
    with locks.locked(path, make_directory=True):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
