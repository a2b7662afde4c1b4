"""Delete the disk layers that went with one sandbox or snapshot, without reading everybody's record
where that can be avoided.

A layer that is not frozen was named by that one alone. For a frozen one the holders that are noted
are asked first; the first whose record names it settles that it stays. Only if there is none, the
records of the whole node are read: notes may be missing, so they never decide that a layer goes.
"""
from pathlib import Path

from nodeworker.hypervisor.qemu.disk.layer_references import (
    UnreadableRecord,
    sandbox_chain,
    snapshot_chain,
)
from nodeworker.hypervisor.qemu.host import Host

_CHAIN_OF = {"sandboxes": sandbox_chain, "snapshots": snapshot_chain, "warm": sandbox_chain}


def release_layers(host: Host, holder: Path, chain: tuple[str, ...] | None) -> None:
    """Delete those layers of `chain` that nothing refers to any more; none while that cannot be
    told.

    `holder` is the directory whose record named them: it must be gone from its place, or its record
    from it. Without a `chain` its record could not be read: then it may have been any layer.
    """
    if chain is None:
        host.collect_layers()
        return
    layers = [reference for reference in chain if reference.startswith("layer:")]
    if layers:
        host.layers.delete(layers, lambda: _needed(host, holder, layers))


def _needed(host: Host, holder: Path, layers: list[str]) -> set[str] | None:
    """Those of `layers` that must stay, perhaps with others; None if that cannot be told. New
    references are held off meanwhile."""
    frozen = {reference for reference in layers if host.layers.is_frozen(reference)}
    for reference in frozen:
        host.layers.notes.remove(reference, holder)
    if all(_has_noted_holder(host, reference) for reference in frozen):
        return frozen
    return host.find_references()


def _has_noted_holder(host: Host, reference: str) -> bool:
    for kind, name in host.layers.notes.holders(reference):
        directory = host.settings.node_dir / kind / name
        try:
            if reference in _CHAIN_OF[kind](directory):
                return True
        except UnreadableRecord:
            return False
        # left behind by a crash; notes are added under the lock that is waited for here
        host.layers.notes.remove(reference, directory)
    return False
