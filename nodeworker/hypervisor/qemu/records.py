"""What the driver writes down about sandboxes, warm images and snapshots: typed, as JSON, one
file each.

The phase and the boot id decide what the files of a sandbox are worth after a crash; see `rundir`.
"""
import dataclasses
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.agent.protocol import AGENT_PORT
from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor.driver import Forward, Shape
from nodeworker.hypervisor.host_facts import HostTuple

# Named as when warm images were called templates: those on disk must be found.
_WARM_IMAGE_RECORD = "template.json"


class Phase(enum.Enum):
    """What the RAM file of a sandbox is worth."""

    SAVED = "saved"      # RAM, device state and disk belong together and are flushed
    # as SAVED unless the host lost power since `boot_id`; a process may be loading it
    WAKING = "waking"
    RUNNING = "running"  # RAM is only worth something while the process lives


class Task(enum.Enum):
    """The operation that is at work, or that died at work."""

    CREATE = "create"
    WAKE = "wake"
    HIBERNATE = "hibernate"
    SNAPSHOT = "snapshot"
    SPARE = "spare"      # a machine that no sandbox has yet is being made


@dataclass(frozen=True)
class Machine:
    """What a saved state fits onto: size, disk chain from the bottom up, and the host it was made
    on."""

    shape: Shape
    chain: tuple[str, ...]
    disk_bytes: int
    made_on: HostTuple

    @property
    def base(self) -> tuple[str, ...]:
        """The layers at the bottom that belong to the image and its warm image."""
        return tuple(each for each in self.chain if not each.startswith("layer:"))

    def to_json(self) -> dict[str, Any]:
        """A JSON object `from_json` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Machine":
        """Raises KeyError or TypeError for a record of another make."""
        shape, made_on = Shape(**record["shape"]), HostTuple(**record["made_on"])
        return cls(shape, tuple(record["chain"]), record["disk_bytes"], made_on)


def find_warm_image(directory: Path) -> Machine | None:
    """The machine saved in the warm image in `directory`; None if it is not complete."""
    record = read_json(directory / _WARM_IMAGE_RECORD)
    return Machine.from_json(record) if record else None


def write_warm_image(directory: Path, machine: Machine) -> None:
    """The last file of a warm image: with it the image is complete."""
    write_json(directory / _WARM_IMAGE_RECORD, machine.to_json())


@dataclass(frozen=True)
class Starting:
    """A start whose guest has not answered yet.

    `since_s` is when it began (s, the monotonic clock of this run of the host), `tries` how many
    boots of it have hung before, `cold_reason` why it boots from its disk; empty for a restore.
    """

    since_s: float
    tries: int = 0
    cold_reason: str = ""


@dataclass(frozen=True)
class Baseline:
    """What the counters of a process said when its sandbox was given it: what it used before is
    another run's, or nobody's. `number` tells one such run of a process from the next."""

    number: int
    cpu_ms: int
    age_ms: int

    @property
    def has_run(self) -> bool:
        """Whether a guest ran in it before. In a process that was only started ahead none has: of
        that one the CPU time counts from its start on."""
        return self.cpu_ms > 0


@dataclass(frozen=True)
class SandboxRecord:
    """Record of one sandbox. `pid` and `start_ticks` name its process, `boot_id` the run of the
    host it was written in; `starting` is there until its guest has answered.

    `kept_since_s` (s, the monotonic clock of this run of the host) is there while the process of a
    saved sandbox is kept, `baseline` while one runs in a process that was kept or started ahead.
    """

    sandbox_id: str
    machine: Machine
    phase: Phase
    task: Task | None
    boot_id: str
    agent_port: int
    forwards: tuple[Forward, ...]
    pid: int | None = None
    start_ticks: int | None = None
    slot: int | None = None
    starting: Starting | None = None
    kept_since_s: float | None = None
    baseline: Baseline | None = None
    revision: int = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object `from_json` reads."""
        record = dataclasses.asdict(self)
        record["phase"] = self.phase.value
        record["task"] = self.task.value if self.task else None
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SandboxRecord":
        """Raises KeyError, TypeError or ValueError for a record of another make."""
        values = dict(record)
        values["machine"] = Machine.from_json(record["machine"])
        values["phase"] = Phase(record["phase"])
        values["task"] = Task(record["task"]) if record["task"] else None
        values["forwards"] = tuple(Forward(**forward) for forward in record["forwards"])
        starting = record.get("starting")  # records of older versions have none
        values["starting"] = Starting(**starting) if starting else None
        baseline = record.get("baseline")
        values["baseline"] = Baseline(**baseline) if baseline else None
        return cls(**values)

    def host_ports(self) -> dict[int, int]:
        """Host port -> guest port of everything to forward, the agent's port among it; nothing for
        a machine that is no sandbox's."""
        ports = {forward.host_port: forward.guest_port for forward in self.forwards}
        return {**ports, self.agent_port: AGENT_PORT} if self.agent_port else ports


@dataclass(frozen=True)
class SnapshotRecord:
    """snapshot.json of a complete snapshot. Without `has_memory` it is of a disk alone: its source
    had no memory any more. `lends_in` is there if its memory goes to the one fork it is made for
    (`images/lent_memory.py`), and names the run of the host in which it is of use."""

    snapshot_id: str
    machine: Machine
    size_bytes: int
    pause_ms: float
    has_memory: bool = True
    lends_in: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object `from_json` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SnapshotRecord":
        """Raises KeyError or TypeError for a record of another make."""
        values = {**record, "machine": Machine.from_json(record["machine"])}
        values.pop("rootfs_sha", None)  # older versions hashed the layers at each capture
        return cls(**values)


def find_snapshot(directory: Path) -> SnapshotRecord | None:
    """The record of the complete snapshot in `directory`; None if there is none."""
    record = read_json(directory / "snapshot.json")
    return SnapshotRecord.from_json(record) if record else None
