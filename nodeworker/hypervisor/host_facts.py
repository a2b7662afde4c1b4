"""What a driver tells of its host: exported disks, used time and space, and what memory depends
on."""
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class DiskExport:
    """The image below a snapshot's disk: its key, which names the very build, and its files by
    name, in the order in which they are to be stored: the last one says that all are there."""

    image_key: str
    image_files: Mapping[str, Path]


class ExportedFiles(Protocol):
    """Gives what another host has exported, each in a new file; that of the disk takes
    `disk_bytes`."""

    @property
    def disk_bytes(self) -> int: ...

    def write_disk(self, target: Path) -> None:
        """Write the disk."""

    def write_image_file(self, name: str, target: Path) -> None:
        """Write a file of the image, by the name that it has in `DiskExport.image_files`."""


@dataclass(frozen=True)
class UsageReading:
    """What the host has charged to one run of a sandbox, a run being the life of one VM process.

    `cpu_ms` is CPU time, device emulation included, and `age_ms` the time since the process started
    (0 once it has ended); both in milliseconds, by the host's own monotonic counters. Another `run`
    counts from 0 again, and no run is ever named twice.
    """

    run: str
    cpu_ms: int
    age_ms: int


@dataclass(frozen=True)
class DiskUse:
    """Allocated bytes on this host, every file counted once: by sandbox id, by snapshot id, and of
    the node itself by name (`images` and `warm_images`, which nodes of one host may share, and
    `other`)."""

    sandboxes: dict[str, int]
    snapshots: dict[str, int]
    node: dict[str, int]


@dataclass(frozen=True)
class HostTuple:
    """What a memory snapshot depends on; RAM restores only where all of it is equal."""

    hypervisor_version: str
    machine: str
    accelerator: str
    cpu_model: str
    image: str


# Why a copy of a snapshot without memory boots cold.
NO_MEMORY = "its snapshot has no memory here: that of its source was lost, or is on another node"


@dataclass(frozen=True)
class SnapshotFacts:
    """A complete snapshot on this host: `size_bytes` is what its files occupy, `pause_ms` how long
    the source stood still. Without `has_memory` it is of a disk alone, and every copy of it boots
    cold."""

    snapshot_id: str
    size_bytes: int
    pause_ms: float
    has_memory: bool = True


class DiskPause(enum.Enum):
    """What became of a machine that stands still because the host's disk was full when it wrote."""

    WAITING = "waiting"    # there is still no room
    RESUMED = "resumed"    # it goes on


@dataclass(frozen=True)
class SuspendedMachines:
    """What of a host stands ready: machines `kept` of sleeping sandboxes, `spares` for the next
    creates, and `prepared` processes without a machine; `ended` of them have just been given up."""

    kept: int = 0
    spares: int = 0
    prepared: int = 0
    ended: int = 0


@dataclass(frozen=True)
class PresetsFacts:
    """The agent presets of this host.

    `ready`: there is an image with presets, on which a sandbox can start. `progress` says in a few
    words how far it is while there is none. `versions` has the version of each preset that is in
    the image, by slug; `failed` says in words for users why another is not, and of a host that is
    to have no presets why none is.
    """

    ready: bool
    progress: str
    failed: dict[str, str]
    versions: dict[str, str]
