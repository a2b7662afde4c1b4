"""Count what sandboxes and snapshots occupy on this host, every file counted once.

A disk layer counts for the sandbox or snapshot that made it. That is the oldest of those that refer
to it, since the others were made from that one. When it is removed, the layer counts for the next
oldest.
"""
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from guest.presets import TREES
from nodeworker.disks.sizes import occupied_bytes, tree_bytes
from nodeworker.hypervisor.host_facts import DiskUse
from nodeworker.hypervisor.qemu.disk.layer_references import (
    Holder,
    sandbox_holders,
    snapshot_holders,
)
from nodeworker.hypervisor.qemu.host import Host


def disk_use(host: Host) -> DiskUse:
    """See Driver.disk_use."""
    layers = {
        name: sum(map(occupied_bytes, paths)) for name, paths in host.layers.list_paths().items()
    }
    sandboxes = list(sandbox_holders(host.settings.node_dir))
    snapshots = list(snapshot_holders(host.settings.node_dir))
    # Snapshots first: a fork made in the same tick of the clock is the younger one.
    makers = _makers([*snapshots, *sandboxes])
    owned = _by_maker(layers, makers)
    spare = sum(size for name, size in layers.items() if name not in makers)
    return DiskUse(
        {
            holder.directory.name: tree_bytes(holder.directory) + owned.get(holder.directory, 0)
            for holder in sandboxes
        },
        {
            holder.directory.name: tree_bytes(holder.directory) + owned.get(holder.directory, 0)
            for holder in snapshots
        },
        {
            "images": (tree_bytes(host.image_dir / "images")
                       + installed_bytes(host.image_dir / TREES)),
            "warm_images": tree_bytes(host.warm_images),
            "other": spare + sum(map(tree_bytes, _others(host))),
        },
    )


def installed_bytes(directory: Path) -> int:
    """Allocated bytes of what agent presets are built of: thousands of files, which nobody writes
    to once they have their name. They are looked at once."""
    total = 0
    for path in directory.iterdir() if directory.is_dir() else ():
        with suppress(FileNotFoundError):  # what another recipe has left is being removed
            total += _tree_bytes_of(path, path.lstat().st_ctime_ns)
    return total


@lru_cache(maxsize=32)
def _tree_bytes_of(path: Path, since_ns: int) -> int:
    """Those of the directory that has this name since then."""
    return tree_bytes(path)


def _makers(holders: list[Holder]) -> dict[str, Path]:
    """The directory of the eldest holder of each layer. Pure."""
    makers: dict[str, Path] = {}
    for holder in sorted(holders, key=lambda each: each.born_ns):
        for reference in holder.chain:
            makers.setdefault(reference, holder.directory)
    return makers


def _by_maker(layers: dict[str, int], makers: dict[str, Path]) -> dict[Path, int]:
    owned: dict[Path, int] = {}
    for name, size_bytes in layers.items():
        if name in makers:
            owned[makers[name]] = owned.get(makers[name], 0) + size_bytes
    return owned


def _others(host: Host) -> list[Path]:
    """What else is in the node's directory: spares, trash, uploads in the making."""
    known = {host.sandboxes, host.snapshots, host.layers.directory}
    return [path for path in host.settings.node_dir.iterdir() if path not in known]
