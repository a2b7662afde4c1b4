"""Talk to the QEMU of one VM: load and save its device state, ask for its disk and its console."""
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.settings import Settings
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.process import argv, qmp
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess
from nodeworker.hypervisor.qemu.rundir import RunDir

_MIGRATION_LIMIT_S = 120.0
# It is over within a millisecond mostly, and a guest stands still for it.
_FINISH_LIMIT_S, _FINISH_PAUSE_S, _FINISH_LONGEST_PAUSE_S = 5.0, 0.0005, 0.02
_FINISHING = "Migration is not finalized yet"  # QEMU's words; its class says nothing


@dataclass(frozen=True)
class IoLimit:
    """What a guest may read, and what it may write, of its disk in a second; 0 is no limit."""

    read_bytes_per_s: int
    write_bytes_per_s: int
    requests_per_s: int

    @classmethod
    def of(cls, settings: Settings) -> "IoLimit":
        """The limit of every machine of a node."""
        rate = settings.vm_io_mb_s * 1024 * 1024
        return cls(rate, rate, settings.vm_iops)


class LoadFailed(DriverError):
    """QEMU could not load a saved state; the RAM file is as it was."""


class Monitor(qmp.QmpClient):
    """The monitor of a sandbox's QEMU, with the few things the driver asks of it."""

    @classmethod
    def of(cls, rundir: RunDir, started: QemuProcess | None = None,
           deadline_s: float = qmp.DEADLINE_S, within_s: float = math.inf) -> "Monitor":
        """Connect; a QEMU that ended at start is reported with its own words."""
        try:
            return cls(rundir.monitor, deadline_s, within_s)
        except qmp.QmpError as error:
            words = started.error_output() if started else ""
            raise DriverError(f"QEMU of {rundir.sandbox_id}: {error}. {words}".strip()) from error

    def load(self, state: str, *, announced: bool = False) -> None:
        """Load the device state from QEMU's descriptor `state`, a number or a name. Raises
        LoadFailed if QEMU says that it cannot; a QEMU that ends or is silent, which may be the
        host's doing and not the state's, is another QmpError.

        Unless it shall be `announced`, the guest is not told to make its address known, which QEMU
        asks of it five times in half a second, each time by an interrupt before its first answer.
        Nobody has to learn the address: the other end of the tap is this machine's alone.
        """
        try:
            self._leave_ram_out()
            if not announced:
                self.run("migrate-set-parameters", {"announce-rounds": 0})
            self.run("migrate-incoming", {"uri": f"fd:{state}"})
            status = self._migration_end()
        except qmp.QmpRefused as error:
            raise LoadFailed(f"loading the saved state: {error}") from error
        if status != "completed":
            raise LoadFailed(f"loading the saved state ended as {status}")

    def save(self, path: Path) -> None:
        """Write the device state of the stopped guest to the new file `path`; RAM is not in it,
        being a file already."""
        self.events.clear()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._leave_ram_out()
            self.run("getfd", {"fdname": "state"}, descriptor)
            self.run("migrate", {"uri": "fd:state"})
            status = self._migration_end()
        finally:
            os.close(descriptor)
        if status != "completed":
            raise DriverError(f"saving the device state ended as {status}")

    def cont(self) -> None:
        """Let the guest execute. For a moment after the event that ends a migration QEMU still
        finishes it and refuses; that is waited for."""
        deadline, pause_s = time.monotonic() + _FINISH_LIMIT_S, _FINISH_PAUSE_S
        while True:
            try:
                self.run("cont")
                return
            except qmp.QmpError as error:
                if _FINISHING not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _FINISH_LONGEST_PAUSE_S)

    def _leave_ram_out(self) -> None:
        """RAM shared with a file is not part of a saved state; the end of a migration is told by an
        event."""
        capabilities = [{"capability": name, "state": True}
                        for name in ("x-ignore-shared", "events")]
        self.run("migrate-set-capabilities", {"capabilities": capabilities})

    def _migration_end(self) -> str:
        def ended(event: dict[str, Any]) -> bool:
            return event["event"] == "MIGRATION" and event["data"]["status"] in {
                "completed", "failed", "cancelled"
            }

        return str(self.wait_event(ended, _MIGRATION_LIMIT_S)["data"]["status"])

    def limit_io(self, limit: IoLimit) -> None:
        """Let the guest read and write its disk at most so fast, from now on."""
        self.run("block_set_io_throttle", {
            "id": self.run("query-block")[0]["qdev"], "bps": 0, "iops": 0,
            "bps_rd": limit.read_bytes_per_s, "bps_wr": limit.write_bytes_per_s,
            "iops_rd": limit.requests_per_s, "iops_wr": limit.requests_per_s
        })

    def active_node(self) -> str:
        """Name of the disk node the guest's disk writes to."""
        return str(self.run("query-block")[0]["inserted"]["node-name"])

    def depth_below_active(self) -> int:
        """How many layers lie under the one the guest's disk writes to."""
        return int(self.run("query-block")[0]["inserted"]["backing_file_depth"])

    def flush_disk(self, node_name: str) -> None:
        """Have everything that was written to a disk node in its file, what QEMU itself remembers
        of where it is included, and flushed. Raises QmpError."""
        said = self.run("human-monitor-command",
                        {"command-line": f"qemu-io {node_name} flush"})
        if said:
            raise qmp.QmpError(f"flushing the disk: {str(said)[:200]}")

    def console(self) -> str:
        """The last of what the guest wrote to its console."""
        try:
            return str(self.run("ringbuf-read", {"device": "console", "size": argv.CONSOLE_BYTES}))
        except qmp.QmpError:
            return ""
