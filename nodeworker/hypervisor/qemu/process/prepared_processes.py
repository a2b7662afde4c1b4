"""QEMU processes that were started ahead of need and have no machine yet: a restore takes one
over instead of starting its own, which spares it most of what QEMU needs to start.

1. One has a directory of its own, `<node_dir>/prepared/<id>`, with the locks and the monitor of a
run directory, a network slot, and open what its disk will stand on: an image and its warm image. It
has never had a guest. 2. It is ready once the file `ready` is there; whoever takes it holds its
operation lock and removes that file first, so it is never given twice. One that nobody works on and
that is not ready is left of somebody who died, and is ended. 3. What it is given is written in
`assemble_machine.py`. Its directory goes before its guest executes: whoever dies earlier leaves a
process that is ended with the directory, and later one that is the sandbox's.
"""
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodeworker.disks import qcow2
from nodeworker.disks.durable import read_json, remove_tree, write_json
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import argv
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess, end_vm
from nodeworker.hypervisor.qemu.records import Machine
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id

PREFIX, SHOWN = "prepared-", "shown"
_READY = "ready"
# One that nobody has taken for so long is of a kind of machine that nobody starts.
_LONGEST_S = 3600.0


@dataclass(frozen=True)
class Prepared:
    """A process that stands ready: its directory, itself, and the number of its network slot.

    `monitor` is there if it has got the machine that it is to be of (see `fork_memory_ahead.py`):
    the connection by which it got it, which whoever takes the process has to close. Another one at
    once takes QEMU some milliseconds.
    """

    rundir: RunDir
    process: QemuProcess
    slot: int
    monitor: Monitor | None = None

    @property
    def shown(self) -> Path:
        """The one directory of the host's data that the process sees."""
        return self.rundir.path / SHOWN


def kind_of(host: Host, machine: Machine) -> dict[str, Any] | None:
    """What a process must have been started for to be of use for `machine`; None if none can be:
    one that restores needs a kernel here (see `argv.needs_kernel`)."""
    here = host.tuple_for(machine)
    if argv.needs_kernel(here.machine.partition("/")[0], incoming=True):
        return None
    return {"shape": asdict(machine.shape), "base": list(machine.base), "host": asdict(here),
            "file_most_bytes": qcow2.most_bytes(machine.disk_bytes), "boot_id": boot_id()}


def write_ready(rundir: RunDir, kind: dict[str, Any], process: QemuProcess, slot: int) -> None:
    """From now on it may be taken."""
    write_json(rundir.path / _READY, {
        "kind": kind, "pid": process.pid, "start_ticks": process.start_ticks, "slot": slot,
        "since_s": time.monotonic()}, durable=False)


@contextmanager
def taken(host: Host, machine: Machine) -> Iterator[Prepared | None]:
    """One that fits `machine`, locked in the block and nobody else's from now on; None if there is
    none."""
    kind = kind_of(host, machine)
    for rundir in _list(host) if kind else ():
        with rundir.nobody_at_work() as is_ours:
            ready = read_json(rundir.path / _READY) if is_ours else None
            if ready and ready["kind"] == kind and rundir.is_alive():
                (rundir.path / _READY).unlink()
                process = QemuProcess(ready["pid"], ready["start_ticks"], errors=None)
                yield Prepared(rundir, process, ready["slot"])
                return
    yield None


def forget(host: Host, rundir: RunDir) -> None:
    """Remove the directory of a process that is a sandbox's now."""
    remove_tree(rundir.path, host.trash)


def discard(host: Host, rundir: RunDir) -> None:
    """End a process, and remove its slot and its directory. Its operation lock must be held."""
    end_vm(rundir)
    host.network.release(rundir.sandbox_id)
    remove_tree(rundir.path, host.trash)


def count(host: Host, kind: dict[str, Any] | None = None) -> int:
    """How many stand ready; with `kind`, of that kind."""
    return sum(ready["kind"] == kind or kind is None for _, ready in _list_ready(host))


def end_surplus(host: Host) -> int:
    """End those that are not whole, too many (the eldest first), too old, or in the way of memory
    that is short; returns how many."""
    found, wanted = _list(host), set()  # one that gets ready after this look is left alone
    if not host_memory.is_short():
        newest = sorted(_list_ready(host), key=lambda pair: -pair[1]["since_s"])
        wanted = {rundir.sandbox_id for rundir, ready in newest[:host.settings.prepared_processes]
                  if time.monotonic() - ready["since_s"] < _LONGEST_S}
    return sum(_end(host, rundir) for rundir in found if rundir.sandbox_id not in wanted)


def end_eldest(host: Host) -> bool:
    """End one, because its slot or its place is needed; False if there is none."""
    eldest = sorted(_list_ready(host), key=lambda pair: pair[1]["since_s"])
    return any(_end(host, rundir) for rundir, _ in eldest)


def _end(host: Host, rundir: RunDir) -> bool:
    with rundir.nobody_at_work() as is_ours:
        if is_ours:
            discard(host, rundir)
        return is_ours


def _list_ready(host: Host) -> list[tuple[RunDir, dict[str, Any]]]:
    found = [(rundir, read_json(rundir.path / _READY)) for rundir in _list(host)]
    return [(rundir, ready) for rundir, ready in found
            if ready and ready["kind"]["boot_id"] == boot_id() and rundir.is_alive()]


def _list(host: Host) -> list[RunDir]:
    return [RunDir(path) for path in sorted(host.prepared.glob(f"{PREFIX}*"))]
