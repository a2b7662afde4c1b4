"""How many spares of each source a node is to have (`warm_spares.py`)."""
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.records import find_warm_image
from nodeworker.hypervisor.qemu.suspended import demand
from nodeworker.hypervisor.qemu.suspended.spare_sources import find_source, is_snapshot


def targets(host: Host) -> dict[str, int]:
    """How many spares of each source there should be, what was wanted most first: SVC_WARM_SPARES
    in all, in proportion to how often each was wanted lately, and no more than that; one of the
    smallest machine if no warm image was wanted. Of a snapshot one less, since most serve once, and
    at most half of all of all snapshots together: what its owner wants must not take everybody's.
    """
    wanted = demand.count(host.warm)
    if all(map(is_snapshot, wanted)):
        wanted |= {name: 1 for name in _smallest(host)}
    most = {source: _most_of(host, source, times) for source, times in wanted.items()}
    found = dict.fromkeys(sorted(wanted, key=lambda source: -wanted[source]), 0)
    left_to_snapshots = host.settings.warm_spares // 2
    for _ in range(host.settings.warm_spares):
        lacking = [source for source in found if found[source] < most[source]
                   and (left_to_snapshots > 0 or not is_snapshot(source))]
        if not lacking:
            break
        source = max(lacking, key=lambda each: wanted[each] / (found[each] + 1))
        found[source] += 1
        left_to_snapshots -= is_snapshot(source)
    return found


def _most_of(host: Host, source: str, times: int) -> int:
    """How many there may be of a source that was wanted so often."""
    if not is_snapshot(source):
        return times
    return times - 1 if find_source(host, source) else 0


def _smallest(host: Host) -> list[str]:
    fitting = [(machine.shape.mem_mb, path.name) for path in host.warm_images.iterdir()
               if path.is_dir() and (machine := find_warm_image(path)) is not None
               and path == host.warm_image_dir(machine.shape)]
    return [name for _, name in sorted(fitting)[:1]]
