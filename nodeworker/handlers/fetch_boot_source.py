"""Brings what a boot is made from to this host, where it is another node's."""
from nodeworker.hypervisor.driver import DriverError
from nodeworker.snapshots import disk_fetch
from nodeworker.wiring import NodeDeps
from objects.store import StoreUnavailable
from services.errors import Unavailable
from services.snapshots.needed_on_node import Origin


class DiskNotHere(DriverError):
    """This attempt came to nothing, another may not; the text may be shown to the owner."""


def bring_here(deps: NodeDeps, origin: Origin) -> None:
    """Have the disk of the captured machine on this host. It takes as long as the disk is large, so
    such boots have a lane of their own, see `services/operations/announcements.py`. Raises
    DiskNotHere, VmBusy, DriverError."""
    if origin.captured_id is None or not origin.is_elsewhere:
        return
    try:
        disk_fetch.fetch(deps, origin.captured_id)
    except (StoreUnavailable, Unavailable) as error:
        raise DiskNotHere("The disk of the snapshot could not be brought to the node of the"
                          " sandbox.") from error
