"""What spares are made of: a warm image, or the memory of a snapshot that new sandboxes are made of
again and again, as of a user's template.

1. In the guest of a snapshot its owner's programs go on as soon as it runs, in a machine that
perhaps nobody will ever have. So a spare reaches nobody until it is a sandbox
(`NodeNetwork.cut_off`), and nothing is started in it but what each restored guest starts. 2. It
runs when it suits the host, at the expense of nobody's quota, so it is bounded: little memory to
copy, few seconds, and no more than half of all spares. 3. A snapshot that was captured for forks
alone is none: it serves once.
"""
from dataclasses import dataclass

from nodeworker.disks.reserve_blocks import MIB
from nodeworker.disks.sizes import occupied_bytes
from nodeworker.hypervisor.driver import MachineSpec
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.guest_image import find_presets
from nodeworker.hypervisor.qemu.records import Machine, find_warm_image

_SNAPSHOT = "snapshot:"
# To copy more takes the disk and the page cache from those who wait.
_MOST_COPIED_BYTES = 512 * MIB


@dataclass(frozen=True)
class SpareSource:
    """A saved machine that new ones are restored from. Its `name` is like no other's on the
    node."""

    name: str
    machine: Machine
    presets: bool = False
    snapshot_id: str | None = None


def is_snapshot(name: str) -> bool:
    """Whether it is the name of a snapshot, and so of one user's."""
    return name.startswith(_SNAPSHOT)


def source_for(host: Host, spec: MachineSpec) -> SpareSource | None:
    """What a create for `spec` is made of, if spares can be made of it."""
    if spec.snapshot_id is None:
        source = _of_warm_image(host, host.warm_image_dir(spec.shape, presets=spec.presets).name)
    else:
        source = None if spec.from_disk else _of_snapshot(host, spec.snapshot_id)
    return source if source is not None and source.machine.shape == spec.shape else None


def find_source(host: Host, name: str) -> SpareSource | None:
    """The source of this name, if creates still use it."""
    if is_snapshot(name):
        return _of_snapshot(host, name.removeprefix(_SNAPSHOT))
    source = _of_warm_image(host, name)
    if source is None or (source.presets and host.find_presets_image() is None):
        return None
    present = host.warm_image_dir(source.machine.shape, presets=source.presets)
    return source if present.name == name else None


def _of_warm_image(host: Host, name: str) -> SpareSource | None:
    machine = find_warm_image(host.warm_images / name)
    if machine is None:
        return None
    return SpareSource(name, machine, find_presets(host.image_for(machine)) is not None)


def _of_snapshot(host: Host, snapshot_id: str) -> SpareSource | None:
    snapshot = host.find_snapshot(snapshot_id)
    if snapshot is None or not snapshot.has_memory or snapshot.lends_in is not None:
        return None
    machine = snapshot.machine
    if (host.mismatch(machine, machine.shape)
            or occupied_bytes(host.captured_ram(snapshot_id)) > _MOST_COPIED_BYTES):
        return None
    return SpareSource(f"{_SNAPSHOT}{snapshot_id}", machine, snapshot_id=snapshot_id)
