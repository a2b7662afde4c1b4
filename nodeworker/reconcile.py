"""Compares the rows of this node with what the driver finds on the host, both ways, and mends the
difference.

1. Rows with an operation under way are left to that operation. 2. A row that says something else
than the host is corrected, or an operation is begun that makes it true. 3. Machines and snapshots
without a row are removed, after a grace period (a create may be about to commit) and not when too
many look orphaned at once: then it is our view that is wrong, and a person looks. 4. Rows without
anything on the host become `stopped`, under the same two conditions. 5. A machine that uses no CPU
is looked at: its guest may have halted it for good. Nothing is decided from memory except how long
an orphan or a loss has been seen.
"""
import logging
import threading
import time

from models.database import connection, database
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import OPEN_STATES, OperationKind, SandboxStatus, SnapshotState
from nodeworker import node_directory, usage
from nodeworker.handlers.lifecycle import forget_transient
from nodeworker.hypervisor.driver import DriverError, UsageReading, VmBusy, VmState
from nodeworker.wiring import NodeDeps
from services.operations import outbox
from services.operations.begin import begin, lock_sandbox
from services.sandboxes import ended_machine, lost_files

log = logging.getLogger(__name__)
# CPU time (ms) that a halted machine's process may use from one look to the next.
_STILL_MS = 20

_RUNNING, _HIBERNATED = SandboxStatus.RUNNING, SandboxStatus.HIBERNATED

# (status of the row, what is on the host) -> the operation that makes the row true again. What is
# missing here is either consistent or handled by `_correct`.
REPAIRS: dict[tuple[SandboxStatus, VmState], OperationKind] = {
    (_RUNNING, VmState.PARTIAL): OperationKind.WAKE,
    (_HIBERNATED, VmState.RUNNING): OperationKind.HIBERNATE,
    (_HIBERNATED, VmState.PARTIAL): OperationKind.HIBERNATE,
}


class Reconciler:
    """One per process; `run` may be called from several threads, one of them works."""

    def __init__(self, deps: NodeDeps) -> None:
        self._deps = deps
        self._lock = threading.Lock()
        self._first_seen: dict[str, float] = {}
        self._last_reading: dict[str, UsageReading] = {}

    def run(self) -> None:
        """Compare once and mend."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            with connection():
                # The host first: a row that appears in between belongs to a machine we did not see,
                # never the other way round.
                found = self._deps.driver.list_sandboxes()
                kept = self._deps.driver.list_snapshots()
                self._mend_rows(found)
                self._stop_lost(found)
                self._remove_orphans(found)
                self._remove_snapshots(kept)
        finally:
            self._lock.release()

    def _mend_rows(self, found: dict[str, VmState]) -> None:
        rows = Sandbox.select().where(
            (Sandbox.node_id == self._deps.settings.node_id)
            & (Sandbox.status != SandboxStatus.STOPPED)
            & Sandbox.task.is_null()
        )
        for row in rows:
            status, actual = SandboxStatus(row.status), found.get(row.id)
            if actual and (status, actual) in REPAIRS:
                self._repair(row, REPAIRS[status, actual])
            elif status is _RUNNING and actual in (VmState.DISK_ONLY, VmState.SAVED):
                usage.sample_sandbox(self._deps, row.id)
                self._correct(row, _HIBERNATED,
                              "its machine ended by itself; it wakes from its disk")
            elif status is _RUNNING and actual is VmState.RUNNING:
                self._end_if_halted(row)
            elif actual is None:
                self._missing(row)
        self._last_reading = {
            row.id: self._last_reading[row.id] for row in rows if row.id in self._last_reading
        }

    def _end_if_halted(self, row: Sandbox) -> None:
        """Only a machine that has hardly used a CPU since the last time is looked at: one that is
        halted uses none."""
        try:
            reading, before = self._deps.driver.read_usage(row.id), self._last_reading.get(row.id)
            if reading is None:
                return
            self._last_reading[row.id] = reading
            still = (
                before and before.run == reading.run and reading.cpu_ms - before.cpu_ms <= _STILL_MS
            )
            if still and self._deps.driver.end_if_halted(row.id):
                usage.sample_sandbox(self._deps, row.id)
                self._correct(row, _HIBERNATED,
                              "its guest halted the machine; it wakes from its disk")
        except VmBusy:
            return
        except DriverError as error:
            log.warning("sandbox %s was not looked at: %s", row.id, error)

    def _repair(self, seen: Sandbox, kind: OperationKind) -> None:
        with database.atomic():
            row = self._unchanged(seen)
            if row is None:
                return
            log.warning("sandbox %s is %s but the host disagrees; repairing by %s", row.id,
                        row.status, kind.value)
            _, messages = begin(self._deps.settings, row, kind, from_any=True)
        outbox.flush(self._deps.queue, messages)

    def _correct(self, seen: Sandbox, status: SandboxStatus, note: str) -> None:
        with database.atomic():
            row = self._unchanged(seen)
            # Looked at again under the row lock: a wake may have started the machine since the host
            # was listed.
            if row is None or self._deps.driver.inspect(
                    row.id) in (VmState.RUNNING, VmState.PARTIAL):
                return
            log.warning("sandbox %s was %s and is now %s: %s", row.id, row.status, status.value,
                        note)
            messages = ended_machine.hibernate(self._deps.settings, row, note)
        outbox.flush(self._deps.queue, messages)

    def _missing(self, seen: Sandbox) -> None:
        """Nothing on the host for a row: never seen in health; say so loudly. `_stop_lost` ends it
        after a while."""
        if self._deps.driver.inspect(seen.id) is not None or self._unchanged_now(seen) is None:
            return
        note = "nothing of it is on its node"
        if seen.operator_note != note:
            log.error("sandbox %s is %s but %s", seen.id, seen.status, note)
            Sandbox.update(operator_note=note).where(Sandbox.id == seen.id).execute()
        if seen.status == _RUNNING:
            self._correct(seen, _HIBERNATED, note)

    def _stop_lost(self, found: dict[str, VmState]) -> None:
        """End the rows whose files are gone. One that has an operation under way is waited for, and
        stays counted."""
        missing = lost_files.list_candidates(self._deps.settings.node_id) - set(found)
        ripe = self._ripe("rows", missing)
        if len(missing) > self._deps.settings.orphan_brake:
            log.error(
                "%d sandboxes have no files on this node; stopping none. Is its disk mounted?",
                len(missing))
            return
        if ripe and not node_directory.is_ours(self._deps):
            log.error("%s is not this node's directory; stopping no sandbox for its lack of files."
                      " Is its disk mounted?", self._deps.settings.node_dir)
            return
        for sandbox_id in ripe:
            messages = lost_files.stop(self._deps.settings, sandbox_id,
                                       lambda: self._deps.driver.inspect(sandbox_id) is None)
            if messages is not None:
                log.error("sandbox %s is stopped: its files are gone from this node", sandbox_id)
                outbox.flush(self._deps.queue, messages)

    def _unchanged(self, seen: Sandbox) -> Sandbox | None:
        row = lock_sandbox(seen.id)
        if (
            row is None
            or row.task is not None
            or row.op_seq != seen.op_seq
            or row.status != seen.status
        ):
            return None
        return row

    def _unchanged_now(self, seen: Sandbox) -> Sandbox | None:
        with database.atomic():
            return self._unchanged(seen)

    def _remove_orphans(self, found: dict[str, VmState]) -> None:
        wanted = {
            row.id
            for row in Sandbox.select(Sandbox.id).where(
                (Sandbox.node_id == self._deps.settings.node_id)
                & ((Sandbox.status != SandboxStatus.STOPPED) | Sandbox.task.is_null(False))
            )
        }
        for sandbox_id in self._ripe("sandboxes", set(found) - wanted):
            log.warning("removing machine %s, which has no row", sandbox_id)
            try:
                self._deps.driver.destroy(sandbox_id)
            except VmBusy:
                log.info("machine %s is busy; next time", sandbox_id)

    def _remove_snapshots(self, kept: set[str]) -> None:
        rows = Snapshot.select().where((Snapshot.node_id == self._deps.settings.node_id)
                                       & Snapshot.state.in_((SnapshotState.PENDING,
                                                             SnapshotState.READY,
                                                             SnapshotState.DELETING)))
        wanted = {row.id for row in rows if not row.transient or self._needed(row)}
        for snapshot_id in self._ripe("snapshots", kept - wanted):
            log.warning("removing snapshot %s, which nothing needs", snapshot_id)
            try:
                forget_transient(self._deps, snapshot_id)
            except DriverError as error:
                log.warning("snapshot %s could not be removed: %s", snapshot_id, error)

    @staticmethod
    def _needed(snapshot: Snapshot) -> bool:
        return (
            Operation.select()
            .where((Operation.snapshot_id == snapshot.id) & Operation.state.in_(OPEN_STATES))
            .exists()
        )

    def _ripe(self, what: str, orphans: set[str]) -> list[str]:
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
        ripe = [
            orphan for orphan in orphans
            if present - self._first_seen[f"{what}/{orphan}"] >= grace_s
        ]
        if len(ripe) > self._deps.settings.orphan_brake:
            log.error("%d %s look orphaned at once; removing none. Is this the right database?",
                      len(ripe), what)
            return []
        return sorted(ripe)


_reconciler: Reconciler | None = None
_reconciler_lock = threading.Lock()


def get_reconciler(deps: NodeDeps) -> Reconciler:
    """The reconciler of this process."""
    global _reconciler
    with _reconciler_lock:
        if _reconciler is None:
            _reconciler = Reconciler(deps)
        return _reconciler
