"""Compares the rows of this node with what the driver finds on the host, both ways, and mends the
difference.

0. The packet policy is loaded again if somebody changed it. 1. Rows with an operation under way are
left to that operation. 2. A row that says something else than the host is corrected, or an
operation is begun that makes it true. 3. Machines and snapshots without a row are removed, after a
grace period (a create may be about to commit) and not when too many look orphaned at once: then it
is our view that is wrong, and a person looks. 4. Rows without anything on the host become
`stopped`, under the same two conditions. 5. A machine that uses no CPU is looked at: its guest may
have halted it for good, or it stands still before a full disk and can go on now. Nothing is decided
from memory except how long an orphan or a loss has been seen.
"""
import logging
import threading
import time
from dataclasses import dataclass

from models.database import connection
from models.states import OperationKind, SandboxStatus
from nodeworker import node_directory, usage
from nodeworker.faults import fault
from nodeworker.handlers.lifecycle import ENDED_BY_ITSELF
from nodeworker.hypervisor.driver import DriverError, VmBusy, VmState
from nodeworker.hypervisor.facts import DiskPause, UsageReading
from nodeworker.snapshots.unneeded_here import remove_unneeded
from nodeworker.wiring import NodeDeps
from services.hosts import nodes
from services.operations import outbox
from services.reconciliation import ended_machine, lost_files, seen_rows
from services.reconciliation.seen_rows import SeenRow
from services.snapshots import on_node

log = logging.getLogger(__name__)
# CPU time (ms) that a halted machine's process may use from one look to the next.
_STILL_MS = 20

DISK_FULL = "it stands still: the disk of its node is full; it goes on when there is room"
_RUNNING, _HIBERNATED = SandboxStatus.RUNNING, SandboxStatus.HIBERNATED

# (status of the row, what is on the host) -> the operation that makes the row true again. What is
# missing here is either consistent or handled by `_fell_asleep`.
REPAIRS: dict[tuple[SandboxStatus, VmState], OperationKind] = {
    (_RUNNING, VmState.PARTIAL): OperationKind.WAKE,
    (_HIBERNATED, VmState.RUNNING): OperationKind.HIBERNATE,
    (_HIBERNATED, VmState.PARTIAL): OperationKind.HIBERNATE,
}


# On the host of a sandbox that sleeps, as it should be.
_AT_REST = (VmState.SAVED, VmState.DISK_ONLY)


@dataclass(frozen=True)
class Look:
    """What one tick saw: the machines on the host first, then the ids of the rows that want one."""

    found: dict[str, VmState]
    wanted: set[str]

    def suspects(self) -> set[str]:
        """Those that could not be asleep and well: without files, or with a machine that is not at
        rest."""
        lively = {name for name, state in self.found.items() if state not in _AT_REST}
        return lively | self.missing()

    def missing(self) -> set[str]:
        """Rows without anything on the host."""
        return self.wanted - self.found.keys()

    def orphans(self) -> set[str]:
        """What is on the host without a row."""
        return self.found.keys() - self.wanted


class Reconciler:
    """One per process; `run` may be called from several threads, one of them works."""

    def __init__(self, deps: NodeDeps) -> None:
        self._deps = deps
        self._lock = threading.Lock()
        self._first_seen: dict[str, float] = {}
        self._last_reading: dict[str, UsageReading] = {}
        self._suspended_told: dict[str, int] = {}

    def run(self) -> None:
        """Compare once and mend."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._restore_network()
            with connection():
                # The host first: a row that appears in between belongs to a machine we did not see,
                # never the other way round.
                found = self._deps.driver.list_sandboxes()
                kept = self._deps.driver.list_snapshots()
                self._pace_writes()
                self._tend_suspended()
                look = Look(found, seen_rows.list_wanted(self._deps.settings.node_id))
                self._mend_rows(look)
                self._stop_lost(look)
                self._remove_orphans(look)
                self._remove_snapshots(kept)
        finally:
            self._lock.release()

    def _restore_network(self) -> None:
        """First of all: without the policy only the rules inside the slots hold a guest back."""
        try:
            if not self._deps.driver.restore_network():
                return
        except DriverError as error:
            log.error("the packet policy of this host could not be looked at: %s", error)
            return
        log.error("the packet policy of this host was changed or removed by somebody else; it is"
                  " loaded again")
        nodes.policy_restored(self._deps.settings.node_id)

    def _pace_writes(self) -> None:
        """Before the disk is full, so that what shares it with the guests goes on."""
        try:
            slow = self._deps.driver.pace_writes()
        except DriverError as error:
            log.error("the guests' writes could not be paced: %s", error)
            return
        if slow:
            log.error("the disk of this host is almost full: guests write slowly until there is"
                      " room")
        elif slow is False:
            log.warning("the disk of this host has room again: guests write freely")

    def _tend_suspended(self) -> None:
        try:
            found = self._deps.driver.tend_suspended()
        except DriverError as error:
            log.error("suspended machines could not be looked at: %s", error)
            return
        told = {"kept": found.kept, "spares": found.spares, "prepared": found.prepared}
        if told != self._suspended_told:
            nodes.write_stopped_machines(self._deps.settings.node_id, told)
            self._suspended_told = told

    def _mend_rows(self, look: Look) -> None:
        settled = seen_rows.list_settled(self._deps.settings.node_id, look.suspects())
        for row in settled:
            status, actual = row.status, look.found.get(row.id)
            if actual and (status, actual) in REPAIRS:
                self._repair(row, REPAIRS[status, actual])
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
        messages = seen_rows.begin_repair(self._deps.settings, seen, kind)
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
        """Nothing on the host for a row: never seen in health; say so loudly. `_stop_lost` ends it
        after a while."""
        if self._deps.driver.inspect(seen.id) is not None or not seen_rows.is_unchanged(seen):
            return
        note = "nothing of it is on its node"
        if seen.operator_note != note:
            log.error("sandbox %s is %s but %s", seen.id, seen.status.value, note)
            seen_rows.write_note(seen, note)
        if seen.status is _RUNNING:
            self._fell_asleep(seen, note)

    def _stop_lost(self, look: Look) -> None:
        """End the rows whose files are gone. One that has an operation under way is waited for, and
        stays counted."""
        missing = lost_files.list_candidates(self._deps.settings.node_id, look.missing())
        for_long = self._seen_for_long("rows", missing)
        if len(missing) > self._deps.settings.orphan_brake:
            log.error(
                "%d sandboxes have no files on this node; stopping none. Is its disk mounted?",
                len(missing))
            return
        if for_long and not node_directory.is_ours(self._deps):
            log.error("%s is not this node's directory; stopping no sandbox for its lack of files."
                      " Is its disk mounted?", self._deps.settings.node_dir)
            return
        for sandbox_id in for_long:
            messages = lost_files.stop(self._deps.settings, sandbox_id,
                                       lambda: self._deps.driver.inspect(sandbox_id) is None)
            if messages is not None:
                log.error("sandbox %s is stopped: its files are gone from this node", sandbox_id)
                outbox.flush(self._deps.queue, messages)

    def _remove_orphans(self, look: Look) -> None:
        for sandbox_id in self._seen_for_long("sandboxes", look.orphans()):
            fault("reconcile.orphan_seen")
            if seen_rows.is_wanted(self._deps.settings.node_id, sandbox_id):
                continue
            log.warning("removing machine %s, which has no row", sandbox_id)
            try:
                self._deps.driver.destroy(sandbox_id)
            except VmBusy:
                log.info("machine %s is busy; next time", sandbox_id)

    def _remove_snapshots(self, kept: set[str]) -> None:
        node_id = self._deps.settings.node_id
        unwanted = (kept - on_node.list_needed(node_id)) | on_node.list_used_up(node_id)
        for snapshot_id in self._seen_for_long("snapshots", unwanted):
            log.warning("removing snapshot %s, which nothing needs", snapshot_id)
            try:
                remove_unneeded(self._deps, snapshot_id)
            except DriverError as error:
                log.warning("snapshot %s could not be removed: %s", snapshot_id, error)

    def _seen_for_long(self, what: str, orphans: set[str]) -> list[str]:
        """Those seen for longer than the grace period; none at all if they are suspiciously
        many."""
        present = time.monotonic()
        for key in [
                key for key in self._first_seen
                if key.startswith(what) and key[len(what) + 1:] not in orphans
        ]:
            del self._first_seen[key]
        for orphan in orphans:
            self._first_seen.setdefault(f"{what}/{orphan}", present)
        grace_s = self._deps.settings.orphan_grace_s
        for_long = [
            orphan for orphan in orphans
            if present - self._first_seen[f"{what}/{orphan}"] >= grace_s
        ]
        if len(for_long) > self._deps.settings.orphan_brake:
            log.error("%d %s look orphaned at once; removing none. Is this the right database?",
                      len(for_long), what)
            return []
        return sorted(for_long)


_reconciler: Reconciler | None = None
_reconciler_lock = threading.Lock()


def get_reconciler(deps: NodeDeps) -> Reconciler:
    """The reconciler of this process."""
    global _reconciler
    with _reconciler_lock:
        if _reconciler is None:
            _reconciler = Reconciler(deps)
        return _reconciler
