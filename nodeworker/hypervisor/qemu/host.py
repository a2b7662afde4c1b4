"""Everything the operations of one node share: directories, image, layers, network, cgroups, and
the host tuple."""
import functools
import hashlib
import logging
import os
import shutil
import subprocess
from pathlib import Path

from config.settings import Settings
from nodeworker.disks.layers import WARM_IMAGES, LayerStore
from nodeworker.hypervisor.driver import DriverError, Shape
from nodeworker.hypervisor.host_facts import HostTuple
from nodeworker.hypervisor.qemu.disk.disk_floor import DiskFloor
from nodeworker.hypervisor.qemu.disk.layer_references import UnreadableRecord, references
from nodeworker.hypervisor.qemu.disk.ram_shares import RamShares
from nodeworker.hypervisor.qemu.images.guest_image import (
    Image,
    current_image,
    image_of,
    presets_image,
)
from nodeworker.hypervisor.qemu.images.image_holders import hold, register
from nodeworker.hypervisor.qemu.images.ram_copies import SparePool
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.accelerator import (
    KVM,
    TCG,
    choose_accelerator,
    keeps_translations,
)
from nodeworker.hypervisor.qemu.process.cgroup import CgroupTree
from nodeworker.hypervisor.qemu.process.timestamp_counter import counter_khz
from nodeworker.hypervisor.qemu.records import (
    Machine,
    SnapshotRecord,
    find_snapshot,
    find_warm_image,
)
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.network.node_network import NodeNetwork
from nodeworker.network.ruleset import NodePorts

_log = logging.getLogger(__name__)
# Changed with what a baked guest is like, where its saved states go on fitting: 2 mounts its root
# with `discard`.
_BAKE_REVISION = "2"
_BINARY = "qemu-system-x86_64"


class Host:
    """The node a driver works on; cheap to make, looks things up when they are first needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.image_dir = settings.image_dir
        self.sandboxes = settings.node_dir / "sandboxes"
        self.snapshots = settings.node_dir / "snapshots"
        self.trash = settings.node_dir / "trash"
        self.warm_images = settings.image_dir / WARM_IMAGES
        self.warm = settings.node_dir / "warm"
        self.prepared = settings.node_dir / "prepared"
        self.empty = settings.node_dir / "empty"
        for directory in (self.sandboxes, self.snapshots, self.trash, self.warm_images, self.warm,
                          self.prepared, self.empty):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        register(settings.image_dir, settings.node_dir)
        self._held: set[str] = set()
        self.layers = LayerStore(settings.node_dir, settings.image_dir)
        self.spares = SparePool(settings.node_dir / "spares", settings.ram_spares)
        self.cgroups = CgroupTree(settings.net_prefix)
        self.network = NodeNetwork(settings.node_dir / "net", prefix=settings.net_prefix,
                                   slot_network=settings.slot_network,
                                   offered=_offered(settings), pool_target=settings.slot_pool)
        self.ram_shares = RamShares((self.sandboxes, self.warm), self.network.slots.owners,
                                    settings.ram_share)
        self.disk_floor = DiskFloor(settings.node_dir, settings, self.ram_shares)
        self.image_disk_floor = DiskFloor(settings.image_dir, settings, self.ram_shares)

    @functools.cached_property
    def image(self) -> Image:
        """The image new sandboxes boot, kept from being pruned while this process lives; raises
        DriverError if none is built."""
        image = current_image(self.image_dir)
        hold(image.directory)
        return image

    @property
    def tuple(self) -> HostTuple:
        """What memory states made here now depend on."""
        return self._tuple_of(self.image)

    def image_for_new(self, *, presets: bool) -> Image:
        """The image that new sandboxes boot, with the agent presets or without. Raises DriverError
        if it is not built."""
        if not presets:
            return self.image
        image = self.find_presets_image()
        if image is None:
            raise DriverError("the image with the agent presets is not built yet")
        return image

    def find_presets_image(self) -> Image | None:
        """The image with the agent presets as it is now, kept from being pruned from now on; None
        if there is none, or this host is to have none."""
        image = presets_image(self.image_dir) if self.settings.presets else None
        if image is not None and image.key not in self._held:
            hold(image.directory)
            self._held.add(image.key)
        return image

    def image_for(self, machine: Machine) -> Image:
        """The image at the bottom of a machine's disk, which may be older than the current one."""
        key = machine.chain[0].partition(":")[2]
        return self.image if key == self.image.key else image_of(self.image_dir, key)

    def tuple_for(self, machine: Machine) -> HostTuple:
        """What a memory state of `machine`, made here now, depends on; a newer current image does
        not change it."""
        return self._tuple_of(self.image_for(machine))

    def _tuple_of(self, image: Image) -> HostTuple:
        machine = image.machine if self.settings.machine == "auto" else self.settings.machine
        cpu = f"{image.cpu}/{_host_cpu() if self.accelerator == KVM else self.counter_khz}"
        return HostTuple(qemu_version(), f"{machine}/{argv.HARDWARE_REVISION}", self.accelerator,
                         cpu, image.key)

    @functools.cached_property
    def accelerator(self) -> str:
        """`kvm` or `tcg`."""
        return choose_accelerator(self.settings.accelerator, self.image, qemu_version(),
                                  self.image_dir)

    @functools.cached_property
    def counter_khz(self) -> int:
        """Rate of the host's time stamp counter."""
        return counter_khz(self.image_dir)

    def mismatch(self, machine: Machine, shape: Shape) -> str:
        """Why the memory of `machine` does not fit what is asked for here; empty if it does."""
        if machine.shape != shape:
            return f"its memory is of shape {machine.shape}, asked for is {shape}"
        here = self.tuple_for(machine)
        if machine.made_on != here:
            return f"its memory was made on {machine.made_on}, this host is {here}"
        return ""

    def rundir(self, sandbox_id: str) -> RunDir:
        """The run directory of a sandbox, whether or not it exists."""
        return RunDir(self.sandboxes / sandbox_id)

    def kernel_command_line(self, image: Image) -> str:
        """The image's, with a root whose deleted files are free on the host too. Under emulation
        with the counter's rate, which the guest could only guess (see `timestamp_counter`), and
        by an old QEMU with programs at the same addresses each time they start: else it translates
        them anew (docs/decisions/0041)."""
        line = argv.with_discard(image.command_line)
        if self.accelerator != TCG:
            return line
        line += f" tsc_early_khz={self.counter_khz}"
        if self.settings.emulated_aslr or keeps_translations(qemu_version()):
            return line
        return f"{line} norandmaps"

    def warm_image_dir(self, shape: Shape, *, presets: bool = False) -> Path:
        """Where the warm image of `shape` for this host is, or will be."""
        return self._warm_image_dir(self.image_for_new(presets=presets), shape)

    def warm_image_of(self, machine: Machine) -> Path:
        """Where the warm image of `machine` is, or was: that of its image and its shape."""
        return self._warm_image_dir(self.image_for(machine), machine.shape)

    def _warm_image_dir(self, image: Image, shape: Shape) -> Path:
        return self.warm_images / warm_image_key(self._tuple_of(image), shape,
                                                 self.kernel_command_line(image))

    def find_warm_image(self, shape: Shape, *, presets: bool = False) -> Machine | None:
        """The machine saved in the warm image of `shape`; None if it is not baked."""
        return find_warm_image(self.warm_image_dir(shape, presets=presets))

    def find_snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        """The record of a complete snapshot."""
        return find_snapshot(self.snapshots / snapshot_id)

    def captured_ram(self, snapshot_id: str) -> Path:
        """Where the RAM file of a snapshot is, if it has one."""
        return self.snapshots / snapshot_id / "ram"

    def blank_machine(self, shape: Shape, *, presets: bool = False) -> Machine:
        """A machine that boots the bare image."""
        image = self.image_for_new(presets=presets)
        return Machine(shape, (f"image:{image.key}",), image.disk_bytes, self._tuple_of(image))

    def collect_layers(self) -> None:
        """Delete disk layers no sandbox and no snapshot refers to; none at all while any record
        cannot be read."""
        self.layers.collect(self.find_references)

    def find_references(self) -> set[str] | None:
        """Everything that any record of this node refers to, by reading all of them; None while one
        cannot be read."""
        try:
            return references(self.settings.node_dir)
        except UnreadableRecord as error:
            _log.error("no disk layer is deleted while %s cannot be read", error)
            return None


def _offered(settings: Settings) -> NodePorts:
    (low, high), (agent_low, agent_high) = settings.host_ports, settings.agent_ports
    return NodePorts(settings.node_address, (low, high), (agent_low, agent_high),
                     settings.agent_sources, settings.edge_sources,
                     settings.guest_gateway_port)


def warm_image_key(host: HostTuple, shape: Shape, kernel_command_line: str) -> str:
    """Name of a warm image: readable, and different wherever a saved state would not fit or be
    another kernel's."""
    parts = (host.hypervisor_version, host.machine, host.accelerator, host.cpu_model, host.image,
             kernel_command_line, _BAKE_REVISION)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return f"{host.image[:24]}-{shape.vcpus}x{shape.mem_mb}-{digest}"


def qemu_version() -> str:
    """First line of `qemu --version`, distribution revision included. It is asked again once the
    program is another one: its package may be updated under a live worker."""
    program = _program()
    found = os.stat(program)
    return _version_of(program, found.st_ino, found.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _program() -> str:
    """Where QEMU is found when it is started, see `spawn`."""
    program = shutil.which(_BINARY, path=os.defpath)
    if program is None:
        raise DriverError(f"there is no {_BINARY} in {os.defpath}")
    return program


@functools.lru_cache(maxsize=1)
def _version_of(program: str, _inode: int, _changed_ns: int) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20,
                          check=True)
    return done.stdout.splitlines()[0]


def _host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
