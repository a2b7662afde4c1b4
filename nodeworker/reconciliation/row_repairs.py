"""Makes the row of a sandbox say again what is on the host: which operation mends which difference,
and what becomes of a machine that ended by itself, stands still or is not there at all.
"""
import logging

from models.states import OperationKind, SandboxStatus
from nodeworker import usage
from nodeworker.error_texts import ENDED_BY_ITSELF
from nodeworker.hypervisor.driver import DriverError, VmBusy, VmState
from nodeworker.hypervisor.host_facts import DiskPause, UsageReading
from nodeworker.reconciliation.look import Look
from nodeworker.wiring import NodeDeps
from services.operations import outbox
from services.reconciliation import ended_machine, seen_rows
from services.reconciliation.seen_rows import SeenRow

log = logging.getLogger(__name__)
# CPU time (ms) that a halted machine's process may use from one look to the next.
_STILL_MS = 20

DISK_FULL = "it stands still: the disk of its node is full; it goes on when there is room"
_RUNNING, _HIBERNATED = SandboxStatus.RUNNING, SandboxStatus.HIBERNATED

# (status of the row, what is on the host) -> the operation that makes the row true again. What is
# missing here is consistent, handled by `_fell_asleep`, or named in `_mending`.
REPAIRS: dict[tuple[SandboxStatus, VmState], OperationKind] = {
    (_RUNNING, VmState.PARTIAL): OperationKind.WAKE,
    (_HIBERNATED, VmState.RUNNING): OperationKind.HIBERNATE,
    (_HIBERNATED, VmState.PARTIAL): OperationKind.HIBERNATE,
}


class Repairs:
    """The repairs of one reconciler; it remembers how much CPU each machine had used at the last
    look."""

    def __init__(self, deps: NodeDeps) -> None:
        self._deps = deps
        self._last_reading: dict[str, UsageReading] = {}

    def mend(self, look: Look) -> None:
        """Mend every row that has no operation under way and says something else than the host."""
        settled = seen_rows.list_settled(self._deps.settings.node_id, look.suspects())
        for row in settled:
            status, actual = row.status, look.found.get(row.id)
            repair = _mending(row, actual)
            if repair:
                self._repair(row, repair)
            elif status is _RUNNING and actual in (VmState.DISK_ONLY, VmState.SAVED):
                usage.sample_sandbox(self._deps, row.id)
                self._fell_asleep(row, ENDED_BY_ITSELF)
            elif status is _RUNNING and actual is VmState.RUNNING:
                self._look_if_still(row)
            elif actual is None:
                self._missing(row)
        self._last_reading = {
            row.id: self._last_reading[row.id] for row in settled if row.id in self._last_reading
        }

    def _look_if_still(self, row: SeenRow) -> None:
        """Only a machine that has hardly used a CPU since the last time is looked at: one that is
        halted, or stands still before a full disk, uses none."""
        try:
            reading, before = self._deps.driver.read_usage(row.id), self._last_reading.get(row.id)
            if reading is None:
                return
            self._last_reading[row.id] = reading
            still = (
                before and before.run == reading.run and reading.cpu_ms - before.cpu_ms <= _STILL_MS
            )
            if still and self._is_paused(row):
                return
            if still and self._deps.driver.end_if_halted(row.id):
                usage.sample_sandbox(self._deps, row.id)
                self._fell_asleep(row, "its guest halted the machine; it wakes from its disk")
        except VmBusy:
            return
        except DriverError as error:
            log.warning("sandbox %s was not looked at: %s", row.id, error)

    def _is_paused(self, row: SeenRow) -> bool:
        """True if the machine stood still because the disk was full; once there is room it goes
        on."""
        pause = self._deps.driver.resume_if_paused(row.id)
        if pause is DiskPause.WAITING and row.operator_note != DISK_FULL:
            log.error("sandbox %s stands still: the disk of this host is full", row.id)
            seen_rows.write_note(row, DISK_FULL)
        elif pause is DiskPause.RESUMED:
            log.warning("sandbox %s goes on: the disk of this host has room again", row.id)
            seen_rows.write_note(row, None)
        return pause is not None

    def _repair(self, seen: SeenRow, kind: OperationKind) -> None:
        messages = seen_rows.begin_repair(
            self._deps.settings, seen, kind,
            lambda: _mending(seen, self._deps.driver.inspect(seen.id)) is kind)
        if messages is not None:
            log.warning("sandbox %s is %s but the host disagrees; repairing by %s", seen.id,
                        seen.status.value, kind.value)
            outbox.flush(self._deps.queue, messages)

    def _fell_asleep(self, seen: SeenRow, note: str) -> None:
        messages = ended_machine.hibernate(
            self._deps.settings, seen, note,
            lambda: self._deps.driver.inspect(seen.id) in (VmState.RUNNING, VmState.PARTIAL))
        if messages is not None:
            log.warning("sandbox %s was running and is now hibernated: %s", seen.id, note)
            outbox.flush(self._deps.queue, messages)

    def _missing(self, seen: SeenRow) -> None:
        """Nothing on the host for a row: never seen in health; say so loudly. The reconciler ends
        it after a while."""
        if self._deps.driver.inspect(seen.id) is not None or not seen_rows.is_unchanged(seen):
            return
        note = "nothing of it is on its node"
        if seen.operator_note != note:
            log.error("sandbox %s is %s but %s", seen.id, seen.status.value, note)
            seen_rows.write_note(seen, note)
        if seen.status is _RUNNING:
            self._fell_asleep(seen, note)


def _mending(seen: SeenRow, actual: VmState | None) -> OperationKind | None:
    """The operation that makes the row true again, by what is on the host. A machine that runs
    without an address in its row was left so by a wake or hibernation that failed: a wake writes
    it, and forwards its ports."""
    if (seen.status, actual) == (_RUNNING, VmState.RUNNING) and not seen.vm_ip:
        return OperationKind.WAKE
    return REPAIRS.get((seen.status, actual)) if actual else None
