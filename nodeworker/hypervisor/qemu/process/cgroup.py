"""One cgroup per VM: CPU time and share, memory and number of tasks; on version 1 hierarchies and
on pure version 2.

Moving QEMU out of the worker's cgroup also keeps systemd from ending it with the worker's unit.
"""
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.process.argv import TRANSLATION_CACHE_MB

_ROOT, _OWN_PLACES = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_V1_CONTROLLERS = ("cpu", "cpuacct", "memory", "pids")
_PERIOD_US = 100_000
# What the kernel gives a group of which nothing is said, for each virtual CPU.
_SHARES_V1, _WEIGHT_V2, _MOST_WEIGHT_V2 = 1024, 100, 10_000
_LEAST_SHARES_V1 = 2
_OVERHEAD_MB = 256 + TRANSLATION_CACHE_MB
_MAX_TASKS = 256
_EMPTY_WAIT_S = 5.0


@dataclass(frozen=True)
class Limits:
    """What one VM may use; half a CPU on top of its virtual ones is for its device emulation. Where
    VMs want more than there is, each gets its share, as its virtual CPUs are of all of theirs, and
    one that gives way next to nothing."""

    quota_us: int
    memory_bytes: int
    vcpus: int = 1
    tasks: int = _MAX_TASKS
    gives_way: bool = False

    @classmethod
    def of(cls, shape: Shape, *, gives_way: bool = False) -> "Limits":
        """The limits for a machine of this shape."""
        return cls(shape.vcpus * _PERIOD_US + _PERIOD_US // 2,
                   (shape.mem_mb + _OVERHEAD_MB) * 1024 * 1024, shape.vcpus, gives_way=gives_way)


def files_v1(limits: Limits) -> dict[str, dict[str, str]]:
    """Version 1: hierarchy -> file -> content."""
    shares = _LEAST_SHARES_V1 if limits.gives_way else _SHARES_V1 * limits.vcpus
    return {
        "cpu": {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(limits.quota_us),
                "cpu.shares": str(shares)},
        "memory": {"memory.limit_in_bytes": str(limits.memory_bytes)},
        "pids": {"pids.max": str(limits.tasks)},
    }


def files_v2(limits: Limits) -> dict[str, str]:
    """Version 2: file -> content."""
    weight = 1 if limits.gives_way else min(_WEIGHT_V2 * limits.vcpus, _MOST_WEIGHT_V2)
    return {
        "cpu.max": f"{limits.quota_us} {_PERIOD_US}",
        "cpu.weight": str(weight),
        "memory.max": str(limits.memory_bytes), "pids.max": str(limits.tasks),
    }


class CgroupTree:
    """All cgroups of one node, below `<prefix>`."""

    def __init__(self, prefix: str, root: Path = _ROOT) -> None:
        self._prefix = prefix
        self._root = root
        self._is_v2 = (root / "cgroup.controllers").exists()

    def _parents(self) -> list[Path]:
        """The directory of this node in each hierarchy in use."""
        if self._is_v2:
            return [self._root / self._prefix]
        hierarchies = [
            name for name in (*_V1_CONTROLLERS, "systemd") if (self._root / name).is_dir()
        ]
        return [self._root / name / self._prefix for name in hierarchies]

    def create(self, name: str, limits: Limits) -> None:
        """Make the cgroup `name` with its limits; raises OSError if this host does not allow it."""
        for parent in self._parents():
            if self._is_v2:
                parent.mkdir(exist_ok=True)
                for level in (self._root, parent):
                    (level / "cgroup.subtree_control").write_text("+cpu +memory +pids")
            (parent / name).mkdir(parents=True, exist_ok=True)
            contents = files_v2(limits) if self._is_v2 else files_v1(limits).get(
                parent.parent.name, {})
            for file, content in contents.items():
                (parent / name / file).write_text(content)

    def join(self, name: str, pid: int) -> None:
        """Move process `pid` with all its threads into cgroup `name`."""
        for parent in self._parents():
            (parent / name / "cgroup.procs").write_text(str(pid))

    def rouse(self) -> None:
        """Have the kernel ready to move processes: for the first in a while it waits until every
        CPU has heard of it (6 ms), for those of the next 30 ms it need not. Nothing is moved: this
        process goes where it is."""
        hierarchy = self._root if self._is_v2 else self._root / "cpu"
        place = _own_place("" if self._is_v2 else "cpu")
        if place is not None:  # else a process that is moved soon waits longer
            with contextlib.suppress(OSError):
                (hierarchy / place.lstrip("/") / "cgroup.procs").write_text("0")

    def pids(self, name: str) -> set[int]:
        """Processes in cgroup `name`."""
        files = [parent / name / "cgroup.procs" for parent in self._parents()]
        return {int(pid) for file in files if file.exists() for pid in file.read_text().split()}

    def cpu_ns(self, name: str) -> int:
        """CPU time the cgroup has used, in nanoseconds; 0 if there is none."""
        try:
            if self._is_v2:
                lines = (self._root / self._prefix / name / "cpu.stat").read_text().splitlines()
                return int(dict(line.split() for line in lines)["usage_usec"]) * 1000
            return int((self._root / "cpuacct" / self._prefix / name / "cpuacct.usage").read_text())
        except FileNotFoundError:
            return 0

    def inode(self, name: str) -> int | None:
        """What tells this cgroup from an earlier one of its name, until the host boots again; None
        if there is none."""
        parent = self._root if self._is_v2 else self._root / "cpuacct"
        try:
            return (parent / self._prefix / name).stat().st_ino
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove the cgroup, and end what is in it: its machine has ended, but a worker that died
        may have left a process there that was to become the machine's. Waits a moment for the
        kernel. Nothing there: no-op."""
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _EMPTY_WAIT_S
        for parent in self._parents():
            while (parent / name).is_dir():
                try:
                    os.rmdir(parent / name)
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)

    def names(self) -> set[str]:
        """Names of all cgroups of this node."""
        parents = [parent for parent in self._parents() if parent.is_dir()]
        return {path.name for parent in parents for path in parent.iterdir() if path.is_dir()}

    def remove_all(self) -> None:
        """Remove every cgroup of this node and the parents."""
        for name in self.names():
            self.remove(name)
        for parent in self._parents():
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(parent)


def _own_place(controller: str) -> str | None:
    """The cgroup of this process in the version 1 hierarchy of a controller, or, without a name, in
    that of version 2; None if it is in none."""
    lines = _OWN_PLACES.read_text(encoding="ascii").splitlines()
    places = {name: place for _, names, place in (line.split(":", 2) for line in lines)
              for name in names.split(",")}
    return places.get(controller)
