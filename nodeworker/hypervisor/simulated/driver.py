"""The simulated driver: keeps every promise of `Driver` with guests in memory and records in files.

Latency and failures are injected by settings, crashes by `faults`.
"""
import time
from pathlib import Path

from config.settings import Settings
from nodeworker.disks.durable import empty_trash
from nodeworker.disks.reserve_blocks import Space
from nodeworker.disks.sizes import tree_bytes
from nodeworker.faults import fault
from nodeworker.hypervisor import driver
from nodeworker.hypervisor.driver import DriverError, Shape, VmBusy, VmNotFound, VmState
from nodeworker.hypervisor.host_facts import (
    DiskExport,
    DiskPause,
    DiskUse,
    ExportedFiles,
    HostTuple,
    PresetsFacts,
    SnapshotFacts,
    SuspendedMachines,
    UsageReading,
)
from nodeworker.hypervisor.simulated import lifecycle, snapshots
from nodeworker.hypervisor.simulated.node import Record, SimulatedNode

# What its guests hold is in memory, so its disk is never full.
_DISK_BYTES = 1 << 50


class SimulatedDriver(driver.Driver):
    """See `Driver`."""

    def __init__(self, settings: Settings) -> None:
        self.node = SimulatedNode(settings)

    def create(self, spec: driver.MachineSpec) -> driver.RunningVm:
        return lifecycle.create(self.node, spec)

    def hibernate(self, sandbox_id: str) -> None:
        lifecycle.hibernate(self.node, sandbox_id)

    def wake(self, spec: driver.MachineSpec) -> driver.RunningVm:
        return lifecycle.wake(self.node, spec)

    def forward(self, spec: driver.MachineSpec) -> None:
        lifecycle.forward(self.node, spec)

    def snapshot(self, sandbox_id: str, snapshot_id: str, *,
                 transient: bool = False) -> SnapshotFacts:
        return snapshots.snapshot(self.node, sandbox_id, snapshot_id)

    def delete_snapshot(self, snapshot_id: str) -> None:
        snapshots.delete_snapshot(self.node, snapshot_id)

    def export_disk(self, snapshot_id: str, target: Path) -> DiskExport:
        return snapshots.export_disk(self.node, snapshot_id, target)

    def import_disk(self, snapshot_id: str, shape: Shape, image_key: str,
                    files: ExportedFiles) -> None:
        snapshots.import_disk(self.node, snapshot_id, shape, image_key, files)

    def inspect(self, sandbox_id: str) -> VmState | None:
        return self.node.inspect(sandbox_id)

    def list_sandboxes(self) -> dict[str, VmState]:
        return self.node.list_sandboxes()

    def host_tuple(self) -> HostTuple:
        return HostTuple("simulated", "simulated", "none", "none", "none")

    def has_warm_image(self, shape: Shape, *, presets: bool = False) -> bool:
        return self.node.warm_image(shape, presets=presets).exists()

    def image_builds(self) -> set[str]:
        return snapshots.image_builds(self.node)

    def presets_facts(self) -> PresetsFacts:
        return self.node.presets.facts()

    def disk_space(self) -> Space:
        return Space(_DISK_BYTES, _DISK_BYTES)

    def bake(self, shape: Shape, progress: driver.Progress = driver.ignore_progress, *,
             presets: bool = False) -> None:
        for phase, point in (("booting", "spawned"), ("saving", "saved")):
            progress(phase)
            time.sleep(self.node.latency_s)
            fault(f"bake.{point}")
        self.node.fail_if_injected("bake")
        self.node.warm_image(shape, presets=presets).touch()

    def grow_disk(self, sandbox_id: str, size_bytes: int) -> None:
        with self.node.operation("grow", sandbox_id):
            record = self.node.get_record(sandbox_id)
            if record.saved or sandbox_id not in self.node.simulator.running():
                raise DriverError(f"{sandbox_id} does not run")
            fault("grow.recorded")
            self.node.simulator.ask("resize", sandbox_id=sandbox_id, device_bytes=size_bytes)
            fault("grow.resized")

    def destroy(self, sandbox_id: str) -> None:
        if not (self.node.sandboxes / sandbox_id).exists():
            return
        with self.node.operation("destroy", sandbox_id):
            fault("destroy.begun")
            self.node.remove(sandbox_id)

    def terminate(self, sandbox_id: str) -> None:
        if (self.node.sandboxes / sandbox_id).exists():
            with self.node.failing("destroy"):
                fault("destroy.begun")
                self.node.remove(sandbox_id)

    def read_usage(self, sandbox_id: str) -> UsageReading | None:
        used = self.node.simulator.usage(sandbox_id)
        return UsageReading(used["run"], used["cpu_ms"], used["age_ms"]) if used else None

    def list_snapshots(self) -> set[str]:
        return {path.parent.name for path in self.node.snapshots.glob("*/snapshot.json")}

    def disk_use(self) -> DiskUse:
        sandboxes = {path.name: tree_bytes(path) for path in self.node.sandboxes.iterdir()}
        captured = {path.name: tree_bytes(path) for path in self.node.snapshots.iterdir()}
        own = {"warm_images": tree_bytes(self.node.warm_images)}
        return DiskUse(sandboxes, captured, own)

    def end_if_halted(self, sandbox_id: str) -> bool:
        return False

    def collect_garbage(self) -> None:
        """Simulated disks have no layers, and nothing is left of them."""

    def resume_if_paused(self, sandbox_id: str) -> DiskPause | None:
        return None

    def pace_writes(self) -> bool | None:
        return None

    def hold_growing(self) -> list[str]:
        return []

    def tend_suspended(self) -> SuspendedMachines:
        return SuspendedMachines()

    def restore_network(self) -> bool:
        return False

    def reclaim(self) -> None:
        for name, state in self.node.list_sandboxes().items():
            if state is VmState.PARTIAL and self._is_half_made(name):
                fault("reclaim.half_made_seen")
                try:
                    self._remove_half_made(name)
                except (VmBusy, VmNotFound):
                    continue
        known = {path.name for path in self.node.sandboxes.iterdir()}
        for name in self.node.simulator.running() - known:
            self.node.simulator.ask("stop", sandbox_id=name)
        empty_trash(self.node.trash)

    def _is_half_made(self, sandbox_id: str) -> bool:
        record = Record.read(self.node.record_path(sandbox_id))
        return record is None or record.task == "create"

    def _remove_half_made(self, sandbox_id: str) -> None:
        """Decided under the lock: a create may have finished since it was looked at."""
        with self.node.operation("destroy", sandbox_id):
            if self._is_half_made(sandbox_id):
                self.node.remove(sandbox_id)
