"""What the node worker asks of a hypervisor, and what is true after each call, whether it succeeds
or fails.

Every method may be called again after `kill -9` of its caller at any instruction: it looks at what
is on the host, finishes or undoes what it finds, and never makes a second VM for one sandbox. Calls
for one sandbox are serialised by the driver itself with a lock on the host, so that two workers
that both believe to own an operation cannot interleave.
"""
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nodeworker.disks.reserve_blocks import Space
from nodeworker.hypervisor import host_facts


class DriverError(Exception):
    """The hypervisor could not do what was asked; the text is for operators, never for clients."""


class VmNotFound(DriverError):
    """There is nothing of this sandbox (or snapshot) on this host."""


class VmBusy(DriverError):
    """Another worker holds this sandbox's lock; try again later."""


class StillStarting(DriverError):
    """The machine was started and its guest has not answered yet, or its ports do not lead to it;
    nobody waits for it here. The same call, `again_in_s` seconds later, looks again, and gives up
    once the guest has had its time."""

    def __init__(self, text: str, again_in_s: float) -> None:
        super().__init__(text)
        self.again_in_s = again_in_s


class MemoryLost(DriverError):
    """The machine's process ended by itself, so there is no memory to save; its disk is here."""


class NoDiskSpace(DriverError):
    """The host's disk has no room for what was asked; nothing was begun."""


class VmState(enum.Enum):
    """What is really on the host for one sandbox."""

    RUNNING = "running"    # a live VM process, guest executing, agent adopted
    SAVED = "saved"        # no process; RAM, device state and disk are complete: wake restores it
    # no process and no valid RAM (crash, power-off): wake cold-boots it, files kept
    DISK_ONLY = "disk"
    # an operation died in the middle (live or not); the same operation repeated completes it
    PARTIAL = "partial"


@dataclass(frozen=True)
class Shape:
    """Size of a machine: `vcpus` virtual CPUs, `mem_mb` MiB of RAM."""

    vcpus: int
    mem_mb: int


@dataclass(frozen=True)
class Forward:
    """One TCP port of the host that is forwarded to one TCP port of the guest."""

    host_port: int
    guest_port: int


@dataclass(frozen=True)
class MachineSpec:
    """All a driver needs to start a sandbox: from a warm image, a snapshot, its own saved state.

    `agent_token` is the secret the guest agent demands from the moment the call returns; it must
    never be logged. `agent_port` is the host port forwarded to the guest agent. `env` are variables
    the agent adds to every exec. Read by `create` only: `presets` has one made of no snapshot stand
    on the image with the agent presets, `from_disk` a copy take the disk alone and boot.
    """

    sandbox_id: str
    shape: Shape
    agent_token: str = field(repr=False)
    agent_port: int
    forwards: tuple[Forward, ...] = ()
    snapshot_id: str | None = None      # None: the warm image of the shape (create only)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    presets: bool = False
    from_disk: bool = False
    shares_snapshot: bool = False       # leave a transient one its memory, others need it (create)
    is_last_try: bool = False           # give saved memory up rather than fail to load it again


@dataclass(frozen=True)
class RunningVm:
    """A VM that answers: `vm_ip` is the address the host reaches it at; `cold` is True if it booted
    from disk (RAM and processes are fresh) instead of being restored; `cold_reason` says why in
    words for operators."""

    sandbox_id: str
    vm_ip: str
    cold: bool = False
    cold_reason: str = ""


Progress = Callable[[str], None]


def ignore_progress(phase: str) -> None:
    """The `progress` of a bake that nobody follows."""


class Driver(ABC):
    """One hypervisor on one host: `qemu.QemuDriver` or `simulated.SimulatedDriver`."""

    @abstractmethod
    def host_tuple(self) -> host_facts.HostTuple:
        """The tuple of this host; cheap, may be called for every heartbeat."""

    @abstractmethod
    def has_warm_image(self, shape: Shape, *, presets: bool = False) -> bool:
        """True if `create` of such a machine restores a warm image instead of cold-booting."""

    @abstractmethod
    def presets_facts(self) -> host_facts.PresetsFacts:
        """Which agent presets a sandbox with `MachineSpec.presets` would get; cheap."""

    @abstractmethod
    def image_builds(self) -> set[str]:
        """The keys of the images that are here, as `DiskExport.image_key` names them; cheap."""

    @abstractmethod
    def disk_space(self) -> Space:
        """Size and free bytes of where machines are, less what is kept free for their memory."""

    @abstractmethod
    def bake(self, shape: Shape, progress: Progress = ignore_progress, *,
             presets: bool = False) -> None:
        """Cold-boot the image in `shape`, warm it up and save it as the warm image of that shape;
        with `presets` the image with the agent presets, brought up to date first.

        `progress` is told in a few words what begins; it must not raise. After success
        `has_warm_image` is True. After failure or a crash nothing of the attempt is visible. A warm
        image that exists already is left alone."""

    @abstractmethod
    def create(self, spec: MachineSpec) -> RunningVm:
        """Start a new sandbox from the warm image of its shape, or from `spec.snapshot_id`.

        After success the sandbox is RUNNING, its agent answers to `spec.agent_token` only, and it
        has a machine-id, SSH host key, hostname, clock and random state of its own. After failure
        nothing of it is left on the host. Repeated after a crash: a RUNNING sandbox of this id is
        returned as it is, one that is still starting is waited for, one that was completely created
        and sleeps or has ended since is woken, anything less is removed and started anew. Raises
        VmNotFound if the snapshot is not here, NoDiskSpace below the floor of free space, VmBusy,
        StillStarting, DriverError."""

    @abstractmethod
    def hibernate(self, sandbox_id: str) -> None:
        """Save RAM, device state and disk, flushed to stable storage, then end the VM process and
        free its network, or keep both for a while, suspended and out of reach, for the next wake.

        After success SAVED (repeating is a no-op). After failure the guest executes again as if
        nothing had been asked, or, if its process died meanwhile, the sandbox is DISK_ONLY. Raises
        MemoryLost if it is DISK_ONLY, VmNotFound, VmBusy, DriverError."""

    @abstractmethod
    def wake(self, spec: MachineSpec) -> RunningVm:
        """Restore a SAVED sandbox, or cold-boot a DISK_ONLY one; on a RUNNING one re-apply forwards
        and return it.

        A saved state that does not fit this host (`HostTuple` differs) or fails to load is
        cold-booted from disk, with `cold=True`. After failure the sandbox is what it was before:
        the saved state is consumed only once the guest runs. Raises VmNotFound, VmBusy,
        NoDiskSpace if there is no room for its memory, StillStarting, DriverError."""

    @abstractmethod
    def forward(self, spec: MachineSpec) -> None:
        """Make the host ports that lead to a RUNNING sandbox those of `spec`, with the guest and
        its open connections undisturbed. Repeating is harmless. After failure it has its old or its
        new ports. Raises VmNotFound, VmBusy, DriverError (also for one that does not run)."""

    @abstractmethod
    def snapshot(self, sandbox_id: str, snapshot_id: str, *,
                 transient: bool = False) -> host_facts.SnapshotFacts:
        """Capture RAM, device state and disk of a RUNNING or SAVED sandbox as `snapshot_id`, or the
        disk of a DISK_ONLY one; the sandbox stays what it was. A `transient` one's memory goes to a
        create that does not share it, and is lost with a restart of the host (copies boot cold).

        The cut is consistent: disk and memory of one instant. Repeating with the id of a complete
        snapshot returns its facts (with `pause_ms` as first measured). After failure the sandbox is
        unharmed and nothing else left. Raises NoDiskSpace, VmNotFound, VmBusy, DriverError."""

    @abstractmethod
    def grow_disk(self, sandbox_id: str, size_bytes: int) -> None:
        """Give a RUNNING sandbox a disk of at least `size_bytes`, with the guest, its files and
        open files undisturbed.

        After success the guest's block device has that size, and keeps it over every later
        operation, as do snapshots and their clones; its file system is the guest's own affair (the
        agent's `grow_disk`). A disk is never made smaller; repeating is harmless. After failure
        nothing is lost; the disk has its old or its new size. Raises VmNotFound, VmBusy,
        DriverError (also for a sandbox that does not run)."""

    @abstractmethod
    def destroy(self, sandbox_id: str) -> None:
        """End the VM, free its network and ports, remove all its files, once nobody else is at work
        on it. Nothing there: no-op. Raises VmBusy, DriverError, never VmNotFound."""

    @abstractmethod
    def terminate(self, sandbox_id: str) -> None:
        """`destroy` of a sandbox that will never be created again, at once: it waits for no guest
        and for no other call that is at work on the sandbox, which fails."""

    @abstractmethod
    def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot and what layers nothing else here refers to. Nothing there: no-op."""

    @abstractmethod
    def export_disk(self, snapshot_id: str, target: Path) -> host_facts.DiskExport:
        """Write the disk of a complete snapshot, as it differs from its image, to the new file
        `target` (qcow2). May take minutes; the snapshot is not locked meanwhile. After failure
        `target` may be half-written. Raises VmNotFound, DriverError."""

    @abstractmethod
    def import_disk(self, snapshot_id: str, shape: Shape, image_key: str,
                    files: host_facts.ExportedFiles) -> None:
        """Make a disk that another host has exported, on the image `image_key`, a snapshot of this
        host without memory, and have that image here. What is here is left alone; after failure
        nothing of it is. Raises NoDiskSpace, VmBusy, DriverError, and what `files` raises."""

    @abstractmethod
    def inspect(self, sandbox_id: str) -> VmState | None:
        """What is on the host for this sandbox, found by looking (process, files), never from
        memory; None if nothing."""

    @abstractmethod
    def read_usage(self, sandbox_id: str) -> host_facts.UsageReading | None:
        """What the present run of a sandbox has used, or the one that ended by itself last; None if
        there is none. Cheap, takes no lock of the sandbox; nothing the guest does can change it but
        using the CPU. May be called at any time, during other calls too."""

    @abstractmethod
    def list_sandboxes(self) -> dict[str, VmState]:
        """Every sandbox with anything on this host, found by looking."""

    @abstractmethod
    def list_snapshots(self) -> set[str]:
        """Ids of the complete snapshots on this host."""

    @abstractmethod
    def disk_use(self) -> host_facts.DiskUse:
        """What sandboxes and snapshots occupy, found by looking. A layer several of them need
        counts for the one that made it, or for the eldest of the others once that one is gone.
        Raises DriverError if that cannot be told."""

    @abstractmethod
    def collect_garbage(self) -> None:
        """Remove disk layers that nothing here refers to, and what dead workers left half done."""

    @abstractmethod
    def end_if_halted(self, sandbox_id: str) -> bool:
        """End a RUNNING machine whose guest has halted all its CPUs for good; True if that was so,
        and it is DISK_ONLY now. Never touches a machine that could still do anything. Raises
        VmNotFound, VmBusy, DriverError."""

    @abstractmethod
    def resume_if_paused(self, sandbox_id: str) -> host_facts.DiskPause | None:
        """Let a RUNNING machine go on that stands still before a full disk, or was held before it
        was, once there is room; None if it does not. Raises VmNotFound, VmBusy, DriverError."""

    @abstractmethod
    def pace_writes(self) -> bool | None:
        """Let guests write slowly while less than half of the free-space floor is left, and freely
        once all of it is; True or False if that has just changed, else None."""

    @abstractmethod
    def hold_growing(self) -> list[str]:
        """Stop machines whose memory grows while the disk that holds it is almost full, until
        `resume_if_paused`; the ids of those stopped now. Cheap, for twice a second."""

    @abstractmethod
    def tend_suspended(self) -> host_facts.SuspendedMachines:
        """End suspended machines that are too old, too many or in the way, begin to make a spare if
        the host is idle, and tell how many there are. For one process of a node. Cheap."""

    @abstractmethod
    def restore_network(self) -> bool:
        """Load packet policy and ports again if lost, a busy sandbox's later; True if they were."""

    @abstractmethod
    def reclaim(self) -> None:
        """At start of the node worker, before any job: remove leftovers that belong to no sandbox
        (half-made clones and snapshots, namespaces, taps, nftables elements, cgroups), re-create
        what live VMs need (nftables tables), fill the network pool. Live VMs are untouched."""
