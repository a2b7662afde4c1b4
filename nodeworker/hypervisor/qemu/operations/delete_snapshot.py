"""Delete a snapshot: it is put aside first, under a name that only we look at; then go those of its
disk layers that nothing else refers to, last the directory whose record names them."""
import os
from pathlib import Path

from nodeworker.disks.durable import list_old, remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.disk.layer_references import UnreadableRecord, snapshot_chain
from nodeworker.hypervisor.qemu.disk.release_layers import release_layers
from nodeworker.hypervisor.qemu.host import Host

_DELETING = ".deleting"


def delete_snapshot(host: Host, snapshot_id: str) -> None:
    """See Driver.delete_snapshot."""
    directory, aside = host.snapshots / snapshot_id, host.trash / f"{snapshot_id}{_DELETING}"
    fault("delete.begun")
    if aside.exists():  # an earlier try died
        _discard(host, aside, directory)
    try:
        os.rename(directory, aside)
    except FileNotFoundError:
        return
    fault("delete.files_removed")
    _discard(host, aside, directory)


def finish_deletions(host: Host) -> None:
    """Complete the deletions whose worker died long ago and that nobody has come to complete. A
    snapshot of the same name that was fetched anew stays."""
    for aside in list_old(host.trash, f"*{_DELETING}"):
        _discard(host, aside, host.snapshots / aside.name.removesuffix(_DELETING))


def _discard(host: Host, aside: Path, directory: Path) -> None:
    """The record goes last: if we die before, the next try still knows the layers."""
    release_layers(host, directory, _chain(aside))
    remove_tree(aside, host.trash)


def _chain(aside: Path) -> tuple[str, ...] | None:
    try:
        return snapshot_chain(aside)
    except UnreadableRecord:
        return None
