"""Take, delete, export and import snapshots of simulated sandboxes."""
import json
from pathlib import Path

from nodeworker.disks.durable import read_json, remove_tree, write_json
from nodeworker.faults import InjectedFault, fault
from nodeworker.hypervisor.driver import DriverError, Shape
from nodeworker.hypervisor.host_facts import DiskExport, ExportedFiles, SnapshotFacts
from nodeworker.hypervisor.simulated.node import BLANK, SimulatedNode

_IMAGE, _DESCRIPTION, _FETCHED = "simulated", "image.json", ".fetched"


def snapshot(node: SimulatedNode, sandbox_id: str, snapshot_id: str) -> SnapshotFacts:
    """See Driver.snapshot."""
    known = node.find_snapshot(snapshot_id)
    if known:
        return SnapshotFacts(**known["facts"])
    with node.operation("snapshot", sandbox_id):
        fault("snapshot.looked")
        known = node.find_snapshot(snapshot_id)
        if known:
            return SnapshotFacts(**known["facts"])
        record = node.get_record(sandbox_id)
        for point in ("begun", "layer_recorded", "ram_begun", "stopped", "switched",
                      "state_written", "ram_copied", "resumed"):
            fault(f"snapshot.{point}")
        alive = not record.saved and sandbox_id in node.simulator.running()
        guest = node.simulator.ask(
            "state", sandbox_id=sandbox_id)["guest"] if alive else record.guest
        facts = SnapshotFacts(snapshot_id, len(json.dumps(guest)), 0.0,
                              has_memory=alive or record.saved)
        fault("snapshot.flushed")
        (node.snapshots / snapshot_id).mkdir(exist_ok=True)
        write_json(node.snapshots / snapshot_id / "snapshot.json",
                   {"facts": vars(facts), "shape": record.shape, "guest": guest})
        fault("snapshot.complete")
        return facts


def delete_snapshot(node: SimulatedNode, snapshot_id: str) -> None:
    """See Driver.delete_snapshot."""
    try:
        fault("delete.begun")
        remove_tree(node.snapshots / snapshot_id, node.trash)
        fault("delete.files_removed")
    except (OSError, InjectedFault) as error:
        raise DriverError(f"delete_snapshot: {error}") from error


def export_disk(node: SimulatedNode, snapshot_id: str, target: Path) -> DiskExport:
    """See Driver.export_disk."""
    snapshot = node.get_snapshot(snapshot_id)
    node.fail_if_injected("export_disk")
    write_json(target, snapshot["guest"])
    image = node.warm_images / _DESCRIPTION
    write_json(image, BLANK)
    return DiskExport(_IMAGE, {"rootfs.qcow2": image, _DESCRIPTION: image})


def image_builds(node: SimulatedNode) -> set[str]:
    """See Driver.image_builds."""
    return {_IMAGE} | {path.stem for path in node.warm_images.glob(f"*{_FETCHED}")}


def import_disk(node: SimulatedNode, snapshot_id: str, shape: Shape, image_key: str,
                files: ExportedFiles) -> None:
    """See Driver.import_disk."""
    if image_key not in image_builds(node):
        draft = node.warm_images / f".{image_key}"
        draft.unlink(missing_ok=True)  # of an attempt that died
        files.write_image_file(_DESCRIPTION, draft)
        draft.rename(node.warm_images / f"{image_key}{_FETCHED}")
    if node.find_snapshot(snapshot_id) is None:
        directory = node.snapshots / snapshot_id
        remove_tree(directory, node.trash)  # of an attempt that died
        directory.mkdir()
        try:
            files.write_disk(directory / "disk")
        except BaseException:
            remove_tree(directory, node.trash)
            raise
        facts = SnapshotFacts(snapshot_id, (directory / "disk").stat().st_size, 0.0,
                              has_memory=False)
        write_json(directory / "snapshot.json",
                   {"facts": vars(facts), "shape": (shape.vcpus, shape.mem_mb),
                    "guest": read_json(directory / "disk")})
