"""The QEMU driver: one entry point per operation, each in a module of its own; here only errors and
the pool of slots."""
import errno
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from config.settings import Settings
from nodeworker.disks.reserve_blocks import Space
from nodeworker.faults import InjectedFault
from nodeworker.hypervisor.driver import (
    Driver,
    DriverError,
    MachineSpec,
    NoDiskSpace,
    Progress,
    RunningVm,
    Shape,
    VmState,
    ignore_progress,
)
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
from nodeworker.hypervisor.presets_record import facts_of, none_chosen, nothing_built
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.disk.disk_use import disk_use
from nodeworker.hypervisor.qemu.disk.export import export_disk
from nodeworker.hypervisor.qemu.disk.layer_references import UnreadableRecord
from nodeworker.hypervisor.qemu.disk.write_pace import pace_writes
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.images.bake_warm_image import bake
from nodeworker.hypervisor.qemu.images.build_presets_image import is_building
from nodeworker.hypervisor.qemu.images.guest_image import find_presets, list_images
from nodeworker.hypervisor.qemu.operations.create import AlreadyCreated, create
from nodeworker.hypervisor.qemu.operations.delete_snapshot import delete_snapshot
from nodeworker.hypervisor.qemu.operations.destroy import destroy, terminate
from nodeworker.hypervisor.qemu.operations.grow import grow_disk
from nodeworker.hypervisor.qemu.operations.halted import end_if_halted
from nodeworker.hypervisor.qemu.operations.hibernate import hibernate
from nodeworker.hypervisor.qemu.operations.import_disk import import_disk
from nodeworker.hypervisor.qemu.operations.paused import resume_if_paused
from nodeworker.hypervisor.qemu.operations.reclaim import collect_garbage, reclaim, restore_network
from nodeworker.hypervisor.qemu.operations.snapshot import snapshot
from nodeworker.hypervisor.qemu.operations.wake import forward, wake
from nodeworker.hypervisor.qemu.process import prepared_processes
from nodeworker.hypervisor.qemu.process.cpu_usage import read_usage
from nodeworker.hypervisor.qemu.process.making_prepared import replace_in_background
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.suspended import kept_machines, warm_spares
from nodeworker.hypervisor.qemu.suspended.give_up_for_slot import give_up_for_slot
from nodeworker.hypervisor.qemu.suspended.making_spares import SpareMaker
from nodeworker.network.nft import NftError
from nodeworker.network.slots import NoSlot

_Method = TypeVar("_Method", bound=Callable[..., Any])
_FAILURES = (
    OSError, QmpError, NftError, NoSlot, InjectedFault, UnreadableRecord,
    subprocess.SubprocessError, ValueError, KeyError,
)


def _operation(method: _Method) -> _Method:
    """Every failure leaves the driver as a DriverError with the cause attached."""

    @functools.wraps(method)
    def guarded(self: "QemuDriver", *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except DriverError:
            raise
        except _FAILURES as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise NoDiskSpace(f"{method.__name__}: {error}") from error
            raise DriverError(f"{method.__name__}: {type(error).__name__}: {error}") from error

    return guarded  # type: ignore[return-value]


class QemuDriver(Driver):
    """Sandboxes as QEMU processes of this host; several instances in several processes may work on
    the same node."""

    def __init__(self, settings: Settings) -> None:
        self.host = Host(settings)
        self._spare_maker = SpareMaker(self.host)

    @_operation
    def host_tuple(self) -> HostTuple:
        return self.host.tuple

    @_operation
    def has_warm_image(self, shape: Shape, *, presets: bool = False) -> bool:
        if presets and self.host.find_presets_image() is None:
            return False
        return self.host.find_warm_image(shape, presets=presets) is not None

    @_operation
    def presets_facts(self) -> PresetsFacts:
        if not self.host.settings.presets:
            return none_chosen()
        image = self.host.find_presets_image()
        presets = find_presets(image) if image else None
        if presets is not None:
            return facts_of(presets)
        return nothing_built("being built" if is_building(self.host.image_dir) else "not built yet")

    @_operation
    def image_builds(self) -> set[str]:
        return {image.build_key for image in list_images(self.host.image_dir)}

    @_operation
    def disk_space(self) -> Space:
        return self.host.disk_floor.space()

    @_operation
    def bake(self, shape: Shape, progress: Progress = ignore_progress, *,
             presets: bool = False) -> None:
        bake(self.host, shape, progress, presets=presets)

    @_operation
    def create(self, spec: MachineSpec) -> RunningVm:
        try:
            running = self._with_slot(create, spec)
        except AlreadyCreated:
            running = self._with_slot(wake, spec)
        self._make_ready_for_the_next(spec.sandbox_id, copies=not running.cold)
        return running

    @_operation
    def hibernate(self, sandbox_id: str) -> None:
        hibernate(self.host, sandbox_id)

    @_operation
    def wake(self, spec: MachineSpec) -> RunningVm:
        running = self._with_slot(wake, spec)
        self._make_ready_for_the_next(spec.sandbox_id)
        return running

    def _make_ready_for_the_next(self, sandbox_id: str, *, copies: bool = False) -> None:
        """In threads of their own, a moment later: a slot, a process, and, if `copies`, a copy of
        the memory that the next create or capture of such a machine begins with."""
        self.host.network.slots.fill_in_background()
        record = self.host.rundir(sandbox_id).find_record()
        if record is not None:
            replace_in_background(self.host, record.machine)
            if copies and self.host.disk_floor.is_left():
                self.host.spares.refill_in_background(self.host.warm_image_of(record.machine))

    def _with_slot(self, start: Callable[[Host, MachineSpec], RunningVm],
                   spec: MachineSpec) -> RunningVm:
        """Start it; while all slots are in use, those of stopped machines are taken for it."""
        while True:
            try:
                return start(self.host, spec)
            except NoSlot:
                if not give_up_for_slot(self.host):
                    raise

    @_operation
    def forward(self, spec: MachineSpec) -> None:
        forward(self.host, spec)

    @_operation
    def snapshot(self, sandbox_id: str, snapshot_id: str, *,
                 transient: bool = False) -> SnapshotFacts:
        facts = snapshot(self.host, sandbox_id, snapshot_id, transient=transient)
        if not transient:  # else the fork comes next, and would share the CPU with that
            self._make_ready_for_the_next(sandbox_id, copies=True)
        return facts

    @_operation
    def grow_disk(self, sandbox_id: str, size_bytes: int) -> None:
        grow_disk(self.host, sandbox_id, size_bytes)

    @_operation
    def destroy(self, sandbox_id: str) -> None:
        destroy(self.host, sandbox_id)

    @_operation
    def terminate(self, sandbox_id: str) -> None:
        terminate(self.host, sandbox_id)

    @_operation
    def delete_snapshot(self, snapshot_id: str) -> None:
        delete_snapshot(self.host, snapshot_id)

    @_operation
    def export_disk(self, snapshot_id: str, target: Path) -> DiskExport:
        return export_disk(self.host, snapshot_id, target)

    @_operation
    def import_disk(self, snapshot_id: str, shape: Shape, image_key: str,
                    files: ExportedFiles) -> None:
        import_disk(self.host, snapshot_id, shape, image_key, files)

    @_operation
    def inspect(self, sandbox_id: str) -> VmState | None:
        return self.host.rundir(sandbox_id).inspect()

    @_operation
    def read_usage(self, sandbox_id: str) -> UsageReading | None:
        return read_usage(self.host, sandbox_id)

    @_operation
    def list_sandboxes(self) -> dict[str, VmState]:
        found = {
            path.name: self.host.rundir(path.name).inspect()
            for path in self.host.sandboxes.iterdir()
        }
        return {name: state for name, state in found.items() if state is not None}

    @_operation
    def list_snapshots(self) -> set[str]:
        complete = self.host.snapshots.glob("*/snapshot.json")
        return {path.parent.name for path in complete if path.parent.suffix != ".tmp"}

    @_operation
    def disk_use(self) -> DiskUse:
        return disk_use(self.host)

    @_operation
    def collect_garbage(self) -> None:
        collect_garbage(self.host)

    @_operation
    def end_if_halted(self, sandbox_id: str) -> bool:
        return end_if_halted(self.host, sandbox_id)

    @_operation
    def resume_if_paused(self, sandbox_id: str) -> DiskPause | None:
        return resume_if_paused(self.host, sandbox_id)

    @_operation
    def pace_writes(self) -> bool | None:
        return pace_writes(self.host)

    @_operation
    def hold_growing(self) -> list[str]:
        return ram_room.hold_growing(self.host)

    @_operation
    def tend_suspended(self) -> SuspendedMachines:
        # each asks anew whether memory is short; as in `give_up_for_slot`
        kinds = (prepared_processes, warm_spares, kept_machines)
        ended = sum(kind.end_surplus(self.host) for kind in kinds)
        self._spare_maker.look()
        return SuspendedMachines(kept_machines.count(self.host),
                                 sum(warm_spares.count_ready(self.host).values()),
                                 prepared_processes.count(self.host), ended)

    @_operation
    def restore_network(self) -> bool:
        return restore_network(self.host)

    @_operation
    def reclaim(self) -> None:
        reclaim(self.host)
        self.host.network.renew_slots()
