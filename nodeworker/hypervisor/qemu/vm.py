"""One VM of this host as an operation works on it: the host, the run directory and the record in
one object.

Whoever has a `Vm` holds the operation lock of its sandbox, so the record in memory is the record on
disk. `locked_vm` and `created_vm` are how an operation begins.
"""
import math
from collections.abc import Iterator
from contextlib import contextmanager

from nodeworker.hypervisor.driver import DriverError, RunningVm, VmNotFound
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.network.addresses import Slot

# What reading an answer raises that is not what QEMU answers: a hostile guest may have made another
# program of it. `Infinity` and deeply nested lists are JSON as well.
_ODD_ANSWER = (TypeError, LookupError, AttributeError, ValueError, ArithmeticError, RecursionError)
_SHOWN = 300


class Vm:
    """What there is of one sandbox, or of one warm image that is being baked, on `host`."""

    def __init__(self, host: Host, rundir: RunDir) -> None:
        self.host = host
        self.rundir = rundir
        self._record = rundir.find_record()

    @property
    def sandbox_id(self) -> str:
        """Whose VM it is."""
        return self.rundir.sandbox_id

    @property
    def record(self) -> SandboxRecord:
        """The record as last read or written. Raises VmNotFound if there is none."""
        if self._record is None:
            raise _never_created(self.sandbox_id)
        return self._record

    @property
    def machine(self) -> Machine:
        """The machine of the record."""
        return self.record.machine

    @property
    def is_starting(self) -> bool:
        """True if a start has not come to its end: the guest has not answered yet."""
        record = self._record
        return (record is not None and record.phase is Phase.RUNNING and record.task is not None
                and record.starting is not None)

    @property
    def is_kept(self) -> bool:
        """True while the stopped process of a saved sandbox is kept for its next wake."""
        return self.record.kept_since_s is not None and self.rundir.is_alive()

    @property
    def slot(self) -> Slot:
        """Its place in the network, while its process lives."""
        assert self.record.slot is not None
        return self.host.network.slots.slot(self.record.slot)

    def write(self, record: SandboxRecord, *, durable: bool) -> None:
        """Replace the record; see `RunDir.write`."""
        try:
            self._record = self.rundir.write(record, durable=durable)
        except Exception:
            # a write that could not be flushed has been made all the same
            self._record = self.rundir.find_record()
            raise

    def answer(self, cold_reason: str = "") -> RunningVm:
        """What the caller of the driver is told once it runs; `cold_reason` is empty unless it was
        booted from its disk."""
        return RunningVm(self.sandbox_id, self.slot.address, bool(cold_reason), cold_reason)

    @contextmanager
    def monitor(self, doing: str, started: QemuProcess | None = None, *,
                connected: Monitor | None = None, within_s: float = math.inf) -> Iterator[Monitor]:
        """A connection to QEMU's monitor, all of which takes at most `within_s` seconds, or the one
        that is `connected`. Its errors, and those of reading its answers, become DriverErrors that
        begin with `doing`, such as "hibernating"."""
        try:
            with connected or Monitor.of(self.rundir, started, within_s=within_s) as monitor:
                yield monitor
        except QmpError as error:
            raise DriverError(f"{doing} {self.sandbox_id}: {error}") from error
        except _ODD_ANSWER as error:
            words = f"{type(error).__name__}: {error}"[:_SHOWN]
            raise DriverError(f"{doing} {self.sandbox_id}: an odd answer: {words}") from error


@contextmanager
def locked_vm(host: Host, sandbox_id: str) -> Iterator[Vm]:
    """Hold the operation lock of a sandbox that has anything here, whatever its state.

    Raises VmBusy, and VmNotFound if its directory is not there or vanishes in the block.
    """
    rundir = host.rundir(sandbox_id)
    try:
        with rundir.operation():
            yield Vm(host, rundir)
    except FileNotFoundError as error:
        if rundir.path.exists():
            raise
        raise VmNotFound(f"no sandbox {sandbox_id} on this host") from error


@contextmanager
def created_vm(host: Host, sandbox_id: str) -> Iterator[Vm]:
    """`locked_vm` for a sandbox that was completely created; raises VmNotFound for any other."""
    with locked_vm(host, sandbox_id) as vm:
        if vm.record.task is Task.CREATE:
            raise _never_created(sandbox_id)
        yield vm


def _never_created(sandbox_id: str) -> VmNotFound:
    return VmNotFound(f"{sandbox_id} was never completely created here")
