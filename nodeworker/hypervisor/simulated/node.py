"""The node directory of the simulated driver: records of sandboxes and snapshots in files, the
simulator process with the guests, injected delays and failures.

All workers share the files, and they survive `kill -9`; the guests live in one process per node,
which outlives the workers.
"""
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.settings import Settings
from nodeworker.disks.durable import read_json, remove_tree, write_json
from nodeworker.disks.layers import WARM_IMAGES
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.faults import InjectedFault, fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, Shape, VmNotFound, VmState
from nodeworker.hypervisor.simulated.control import SimulatorControl
from nodeworker.hypervisor.simulated.presets import HostPresets

BLANK: dict[str, Any] = {"token": "", "sandbox_id": None, "env": {}, "files": {}, "listening": [],
                         "servers": []}


@dataclass(frozen=True)
class Record:
    """vm.json of a simulated sandbox; `guest` is what its disk and memory held when they were last
    saved."""

    shape: tuple[int, int]
    saved: bool
    task: str | None
    guest: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        record = read_json(path)
        return cls(**{**record, "shape": tuple(record["shape"])}) if record else None

    def write(self, path: Path) -> "Record":
        write_json(path, vars(self), durable=False)
        return self


class SimulatedNode:
    """The directory of one node; settings `simulated_latency_ms` and `simulated_failures` slow down
    and fail operations."""

    def __init__(self, settings: Settings) -> None:
        self.latency_s = settings.simulated_latency_ms / 1000
        # Of all its guests, which have none of their own.
        self.address = settings.node_address
        disk_bytes = settings.simulated_disk_mb * MIB
        self.blank = {**BLANK, "device_bytes": disk_bytes, "disk_bytes": disk_bytes}
        self._failures = dict(item.split("=") for item in settings.simulated_failures)
        self.sandboxes = settings.node_dir / "sandboxes"
        self.snapshots = settings.node_dir / "snapshots"
        self.warm_images = settings.node_dir / WARM_IMAGES
        self.trash = settings.node_dir / "trash"
        self.presets = HostPresets(settings.node_dir, settings.presets)
        for directory in (self.sandboxes, self.snapshots, self.warm_images, self.trash):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.simulator = SimulatorControl(settings.node_dir / "simulator")

    def warm_image(self, shape: Shape, *, presets: bool) -> Path:
        """The file that is there once `shape` is baked."""
        return self.warm_images / f"{shape.vcpus}x{shape.mem_mb}{'-presets' if presets else ''}"

    def find_snapshot(self, snapshot_id: str) -> dict[str, Any] | None:
        """The record of a complete snapshot."""
        return read_json(self.snapshots / snapshot_id / "snapshot.json")

    def get_snapshot(self, snapshot_id: str) -> dict[str, Any]:
        """The record of a complete snapshot. Raises VmNotFound if it is not here."""
        snapshot = self.find_snapshot(snapshot_id)
        if snapshot is None:
            raise VmNotFound(f"no snapshot {snapshot_id} on this host")
        return snapshot

    def inspect(self, sandbox_id: str) -> VmState | None:
        """See Driver.inspect."""
        return self.state(sandbox_id, self.simulator.running())

    def state(self, sandbox_id: str, running: set[str]) -> VmState | None:
        """What is true of a sandbox while the guests `running` run."""
        record, alive = Record.read(self.record_path(sandbox_id)), sandbox_id in running
        if record is None:
            return VmState.PARTIAL if alive else None
        if record.task == "create":
            return VmState.PARTIAL
        if alive:
            return VmState.PARTIAL if record.saved or record.task else VmState.RUNNING
        return VmState.SAVED if record.saved else VmState.DISK_ONLY

    def list_sandboxes(self) -> dict[str, VmState]:
        """See Driver.list_sandboxes."""
        running = self.simulator.running()
        found = {path.name: self.state(path.name, running) for path in self.sandboxes.iterdir()}
        return {name: state for name, state in found.items() if state is not None}

    def remove(self, sandbox_id: str) -> None:
        """End the guest and remove its files; an operation at work finds its directory gone."""
        self.simulator.ask("stop", sandbox_id=sandbox_id)
        for point in ("killed", "put_aside", "network_freed"):
            fault(f"destroy.{point}")
        remove_tree(self.sandboxes / sandbox_id, self.trash)
        self.simulator.ask("stop", sandbox_id=sandbox_id)
        fault("destroy.files_removed")

    def record_path(self, sandbox_id: str) -> Path:
        """Where the record of a sandbox is."""
        return self.sandboxes / sandbox_id / "vm.json"

    def get_record(self, sandbox_id: str) -> Record:
        """The record of a sandbox. Raises VmNotFound if it was never completely created."""
        record = Record.read(self.record_path(sandbox_id))
        if record is None or record.task == "create":
            raise VmNotFound(f"{sandbox_id} was never completely created here")
        return record

    @contextmanager
    def operation(self, name: str, sandbox_id: str, *, create: bool = False) -> Iterator[None]:
        """The sandbox's lock, the injected delay and failure, and errors as DriverErrors."""
        try:
            path = self.sandboxes / sandbox_id / "op.lock"
            with locks.locked(path, make_directory=create), self.failing(name):
                yield
        except FileNotFoundError as error:
            raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error
        except OSError as error:
            raise DriverError(f"{name}: {error}") from error

    @contextmanager
    def failing(self, name: str) -> Iterator[None]:
        """The injected delay and failure of the operation `name`, and its errors as
        DriverErrors."""
        try:
            time.sleep(self.latency_s)
            self.fail_if_injected(name)
            yield
        except FileNotFoundError:
            raise
        except (OSError, InjectedFault) as error:
            raise DriverError(f"{name}: {error}") from error

    def fail_if_injected(self, name: str, chance: Callable[[], float] = random.random) -> None:
        """Raise DriverError as often as the settings say for the operation `name`."""
        if chance() < float(self._failures.get(name, 0)):
            raise DriverError(f"{name}: injected by SVC_SIMULATED_FAILURES")
