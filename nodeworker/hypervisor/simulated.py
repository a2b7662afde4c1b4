"""A hypervisor in memory, for API tests, runs of scale and a laptop without root; it keeps every
promise of `Driver`.

Records lie in files, so that all workers share them and they survive `kill -9`; running guests live
in one process per node, the simulator, which outlives the workers. Latency and failures are
injected by settings, crashes by `faults`.
"""
import hashlib
import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from config.settings import Settings
from nodeworker.disks.durable import empty_trash, read_json, remove_tree, write_json
from nodeworker.disks.sizes import tree_bytes
from nodeworker.faults import InjectedFault, fault
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import (
    DiskExport,
    DiskUse,
    Driver,
    DriverError,
    HostTuple,
    LaunchSpec,
    Progress,
    RunningVm,
    Shape,
    SnapshotFacts,
    UsageReading,
    VmBusy,
    VmNotFound,
    VmState,
    unheard,
)
from nodeworker.hypervisor.simulator.control import SimulatorControl

_ADDRESS = "127.0.0.1"
_BLANK: dict[str, Any] = {"token": "", "sandbox_id": None, "env": {}, "files": {}, "listening": []}
_MIB = 1024 ** 2


@dataclass(frozen=True)
class _Record:
    """vm.json of a simulated sandbox; `guest` is what its disk and memory held when they were last
    saved."""

    shape: tuple[int, int]
    saved: bool
    task: str | None
    guest: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_Record | None":
        record = read_json(path)
        return cls(**{**record, "shape": tuple(record["shape"])}) if record else None

    def write(self, path: Path) -> "_Record":
        write_json(path, vars(self), durable=False)
        return self


class SimulatedDriver(Driver):
    """See `Driver`; settings `simulated_latency_ms` and `simulated_failures` slow down and fail
    operations."""

    def __init__(self, settings: Settings) -> None:
        self._latency_s = settings.simulated_latency_ms / 1000
        disk_bytes = settings.simulated_disk_mb * _MIB
        self._blank = {**_BLANK, "device_bytes": disk_bytes, "disk_bytes": disk_bytes}
        self._failures = dict(item.split("=") for item in settings.simulated_failures)
        self._sandboxes = settings.node_dir / "sandboxes"
        self._snapshots = settings.node_dir / "snapshots"
        self._templates = settings.node_dir / "templates"
        self._trash = settings.node_dir / "trash"
        for directory in (self._sandboxes, self._snapshots, self._templates, self._trash):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._simulator = SimulatorControl(settings.node_dir / "simulator")

    def host_tuple(self) -> HostTuple:
        return HostTuple("simulated", "simulated", "none", "none", "none")

    def has_warm_image(self, shape: Shape) -> bool:
        return (self._templates / f"{shape.vcpus}x{shape.mem_mb}").exists()

    def bake(self, shape: Shape, progress: Progress = unheard) -> None:
        for phase, point in (("booting", "spawned"), ("saving", "saved")):
            progress(phase)
            time.sleep(self._latency_s)
            fault(f"bake.{point}")
        self._injected("bake")
        (self._templates / f"{shape.vcpus}x{shape.mem_mb}").touch()

    def create(self, spec: LaunchSpec) -> RunningVm:
        with self._operation("create", spec.sandbox_id, create=True):
            if self.inspect(spec.sandbox_id) is VmState.RUNNING:
                return RunningVm(spec.sandbox_id, _ADDRESS)
            try:
                return self._create(spec)
            except BaseException:
                self._remove(spec.sandbox_id)
                raise

    def _create(self, spec: LaunchSpec) -> RunningVm:
        guest, reason = self._source(spec)
        shape = (spec.shape.vcpus, spec.shape.mem_mb)
        self._simulator.ask("stop", sandbox_id=spec.sandbox_id)
        record = _Record(shape, False, "create", guest).write(self._path(spec.sandbox_id))
        fault("create.recorded")
        self._run(spec, record, renew=True)
        replace(record, task=None).write(self._path(spec.sandbox_id))
        return RunningVm(spec.sandbox_id, _ADDRESS, bool(reason), reason)

    def _source(self, spec: LaunchSpec) -> tuple[dict[str, Any], str]:
        if spec.snapshot_id is None:
            return self._blank, "" if self.has_warm_image(
                spec.shape) else "this shape is not baked yet"
        snapshot = read_json(self._snapshots / spec.snapshot_id / "snapshot.json")
        if snapshot is None:
            raise VmNotFound(f"no snapshot {spec.snapshot_id} on this host")
        fits = tuple(snapshot["shape"]) == (spec.shape.vcpus, spec.shape.mem_mb)
        if fits:
            return dict(snapshot["guest"]), ""
        return _rebooted(snapshot["guest"]), "its memory is of another shape"

    def _run(self, spec: LaunchSpec, record: _Record, *, renew: bool) -> None:
        task = record.task
        self._simulator.ask("start", sandbox_id=spec.sandbox_id, port=spec.agent_port,
                            guest=record.guest)
        fault(f"{task}.spawned")
        fault(f"{task}.loaded")
        if task == "wake":
            replace(record, saved=False).write(self._path(spec.sandbox_id))
            fault("wake.marked")
        fault(f"{task}.running")
        adoption = {
            "newToken": spec.agent_token, "sandboxId": spec.sandbox_id, "env": spec.env,
            "renew": renew, "machineId": secrets.token_hex(16), "hostname": spec.sandbox_id
        }
        self._simulator.ask("adopt", sandbox_id=spec.sandbox_id, request=adoption)
        fault(f"{task}.adopted")

    def hibernate(self, sandbox_id: str) -> None:
        with self._operation("hibernate", sandbox_id):
            record, path = self._get(sandbox_id), self._path(sandbox_id)
            if not record.saved:
                if sandbox_id not in self._simulator.running():
                    raise DriverError(f"{sandbox_id} has no process and no saved memory")
                record = self._save(sandbox_id, record)
            self._simulator.ask("stop", sandbox_id=sandbox_id)
            replace(record, task=None).write(path)
            fault("hibernate.ended")

    def _save(self, sandbox_id: str, record: _Record) -> _Record:
        path = self._path(sandbox_id)
        replace(record, task="hibernate").write(path)
        try:
            for point in ("begun", "stopped", "state_written", "flushed"):
                fault(f"hibernate.{point}")
            guest = self._simulator.ask("state", sandbox_id=sandbox_id)["guest"]
        except BaseException:
            replace(record, task=None).write(path)
            raise
        record = replace(record, saved=True, task=None, guest=guest).write(path)
        fault("hibernate.saved")
        return record

    def wake(self, spec: LaunchSpec) -> RunningVm:
        with self._operation("wake", spec.sandbox_id):
            record, path = self._get(spec.sandbox_id), self._path(spec.sandbox_id)
            alive = spec.sandbox_id in self._simulator.running()
            reason = (
                ""
                if record.saved or alive
                else "no saved memory: its process ended without being hibernated"
            )
            if record.saved:
                self._simulator.ask("stop", sandbox_id=spec.sandbox_id)
            if record.saved or record.task or not alive:
                guest = _rebooted(record.guest) if reason else record.guest
                waking = replace(record, task="wake", guest=guest).write(path)
                try:
                    fault("wake.begun")
                    self._run(spec, waking, renew=False)
                except BaseException:
                    self._simulator.ask("stop", sandbox_id=spec.sandbox_id)
                    replace(record, task=None).write(path)
                    raise
                replace(record, saved=False, task=None).write(path)
            return RunningVm(spec.sandbox_id, _ADDRESS, bool(reason), reason)

    def snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotFacts:
        known = read_json(self._snapshots / snapshot_id / "snapshot.json")
        if known:
            return SnapshotFacts(**known["facts"])
        with self._operation("snapshot", sandbox_id):
            record = self._get(sandbox_id)
            for point in ("begun", "layer_recorded", "stopped", "switched", "state_written",
                          "ram_copied", "resumed"):
                fault(f"snapshot.{point}")
            if not record.saved and sandbox_id not in self._simulator.running():
                raise DriverError(f"{sandbox_id} is neither running nor saved")
            guest = record.guest if record.saved else self._simulator.ask(
                "state", sandbox_id=sandbox_id)["guest"]
            content = json.dumps(guest, sort_keys=True).encode()
            facts = SnapshotFacts(snapshot_id,
                                  hashlib.sha256(content).hexdigest(), len(content), 0.0)
            fault("snapshot.flushed")
            (self._snapshots / snapshot_id).mkdir(exist_ok=True)
            write_json(self._snapshots / snapshot_id / "snapshot.json",
                       {"facts": vars(facts), "shape": record.shape, "guest": guest})
            fault("snapshot.complete")
            return facts

    def grow_disk(self, sandbox_id: str, size_bytes: int) -> None:
        with self._operation("grow", sandbox_id):
            record = self._get(sandbox_id)
            if record.saved or sandbox_id not in self._simulator.running():
                raise DriverError(f"{sandbox_id} does not run")
            fault("grow.recorded")
            self._simulator.ask("resize", sandbox_id=sandbox_id, device_bytes=size_bytes)
            fault("grow.resized")

    def destroy(self, sandbox_id: str) -> None:
        if not (self._sandboxes / sandbox_id).exists():
            return
        with self._operation("destroy", sandbox_id):
            fault("destroy.begun")
            self._remove(sandbox_id)

    def _remove(self, sandbox_id: str) -> None:
        self._simulator.ask("stop", sandbox_id=sandbox_id)
        fault("destroy.killed")
        fault("destroy.network_freed")
        remove_tree(self._sandboxes / sandbox_id, self._trash)
        fault("destroy.files_removed")

    def delete_snapshot(self, snapshot_id: str) -> None:
        try:
            fault("delete.begun")
            remove_tree(self._snapshots / snapshot_id, self._trash)
            fault("delete.files_removed")
        except (OSError, InjectedFault) as error:
            raise DriverError(f"delete_snapshot: {error}") from error

    def export_disk(self, snapshot_id: str, target: Path) -> DiskExport:
        snapshot = read_json(self._snapshots / snapshot_id / "snapshot.json")
        if snapshot is None:
            raise VmNotFound(f"no snapshot {snapshot_id} on this host")
        self._injected("export_disk")
        write_json(target, snapshot["guest"])
        image = self._templates / "image.json"
        write_json(image, _BLANK)
        return DiskExport("simulated", image)

    def inspect(self, sandbox_id: str) -> VmState | None:
        return self._state(sandbox_id, self._simulator.running())

    def read_usage(self, sandbox_id: str) -> UsageReading | None:
        used = self._simulator.usage(sandbox_id)
        return UsageReading(used["run"], used["cpu_ms"], used["age_ms"]) if used else None

    def _state(self, sandbox_id: str, running: set[str]) -> VmState | None:
        record, alive = _Record.read(self._path(sandbox_id)), sandbox_id in running
        if record is None:
            return VmState.PARTIAL if alive else None
        if record.task == "create":
            return VmState.PARTIAL
        if alive:
            return VmState.PARTIAL if record.saved or record.task else VmState.RUNNING
        return VmState.SAVED if record.saved else VmState.DISK_ONLY

    def list_sandboxes(self) -> dict[str, VmState]:
        running = self._simulator.running()
        found = {path.name: self._state(path.name, running) for path in self._sandboxes.iterdir()}
        return {name: state for name, state in found.items() if state is not None}

    def list_snapshots(self) -> set[str]:
        return {path.parent.name for path in self._snapshots.glob("*/snapshot.json")}

    def disk_use(self) -> DiskUse:
        sandboxes = {path.name: tree_bytes(path) for path in self._sandboxes.iterdir()}
        snapshots = {path.name: tree_bytes(path) for path in self._snapshots.iterdir()}
        return DiskUse(sandboxes, snapshots, {"templates": tree_bytes(self._templates)})

    def end_if_halted(self, sandbox_id: str) -> bool:
        return False

    def collect_layers(self) -> None:
        """Simulated disks have no layers."""

    def reclaim(self) -> None:
        for name, state in self.list_sandboxes().items():
            if state is VmState.PARTIAL and self._is_half_made(name):
                fault("reclaim.half_made_seen")
                try:
                    self._remove_half_made(name)
                except (VmBusy, VmNotFound):
                    continue
        for name in self._simulator.running() - {path.name for path in self._sandboxes.iterdir()}:
            self._simulator.ask("stop", sandbox_id=name)
        empty_trash(self._trash)

    def _is_half_made(self, sandbox_id: str) -> bool:
        record = _Record.read(self._path(sandbox_id))
        return record is None or record.task == "create"

    def _remove_half_made(self, sandbox_id: str) -> None:
        """Decided under the lock: a create may have finished since it was looked at."""
        with self._operation("destroy", sandbox_id):
            if self._is_half_made(sandbox_id):
                self._remove(sandbox_id)

    def _path(self, sandbox_id: str) -> Path:
        return self._sandboxes / sandbox_id / "vm.json"

    def _get(self, sandbox_id: str) -> _Record:
        record = _Record.read(self._path(sandbox_id))
        if record is None or record.task == "create":
            raise VmNotFound(f"{sandbox_id} was never completely created here")
        return record

    @contextmanager
    def _operation(self, name: str, sandbox_id: str, *, create: bool = False) -> Iterator[None]:
        """The sandbox's lock, the injected delay and failure, and errors as DriverErrors."""
        try:
            with self._lock(sandbox_id, create):
                time.sleep(self._latency_s)
                self._injected(name)
                yield
        except FileNotFoundError as error:
            raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error
        except (OSError, InjectedFault) as error:
            raise DriverError(f"{name}: {error}") from error

    def _lock(self, sandbox_id: str, create: bool) -> AbstractContextManager[None]:
        return locks.locked(self._sandboxes / sandbox_id / "op.lock", make_directory=create)

    def _injected(self, name: str, chance: Callable[[], float] = random.random) -> None:
        if chance() < float(self._failures.get(name, 0)):
            raise DriverError(f"{name}: injected by SVC_SIMULATED_FAILURES")


def _rebooted(guest: dict[str, Any]) -> dict[str, Any]:
    """What a cold boot leaves of a guest: its files."""
    return dict(guest) | {"listening": []}
