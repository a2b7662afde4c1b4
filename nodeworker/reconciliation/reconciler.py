"""Compares the rows of this node with what the driver finds on the host, both ways, and mends the
difference.

0. The packet policy is loaded again if somebody changed it. 1. Rows with an operation under way are
left to that operation. 2. A row that says something else than the host is corrected, or an
operation is begun that makes it true (`row_repairs.py`). 3. Machines and snapshots without a row,
or whose row says that they are done with, are removed, and 4. rows without anything on the host
become `stopped`, once they have been seen for long and are not too many (`orphans.py`). 5. A
machine that uses no CPU is looked at: its guest may have halted it for good, or it stands still
before a full disk and can go on now. Nothing is decided from memory except how long an orphan or a
loss has been seen.
"""
import logging

from models.database import connection
from nodeworker import node_directory
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmBusy
from nodeworker.reconciliation.look import Look
from nodeworker.reconciliation.orphans import SeenForLong
from nodeworker.reconciliation.row_repairs import Repairs
from nodeworker.snapshots.remove_files import remove_unneeded
from nodeworker.wiring import NodeDeps
from services.hosts import nodes
from services.operations import outbox
from services.reconciliation import lost_files, seen_rows
from services.snapshots import needed_on_node

log = logging.getLogger(__name__)


def restore_network(deps: NodeDeps) -> bool:
    """Load the packet policy again where it is not as it is to be; True if so. One that cannot be
    looked at is an error of the log."""
    try:
        return deps.driver.restore_network()
    except DriverError as error:
        log.error("the packet policy of this host could not be looked at: %s", error)
        return False


class Reconciler:
    """One per node; one thread at a time calls it."""

    def __init__(self, deps: NodeDeps) -> None:
        self._deps = deps
        self._repairs = Repairs(deps)
        self._seen = SeenForLong(deps.settings)
        self._suspended_told: dict[str, int] = {}

    def run(self) -> None:
        """Compare once and mend."""
        self._restore_network()
        with connection():
            # The host first: a row that appears in between belongs to a machine we did not see,
            # never the other way round.
            found = self._deps.driver.list_sandboxes()
            kept = self._deps.driver.list_snapshots()
            self._pace_writes()
            self._tend_suspended()
            look = Look(found, seen_rows.list_wanted(self._deps.settings.node_id))
            self._repairs.mend(look)
            self._stop_lost(look)
            self._remove_orphans(look)
            self._remove_snapshots(kept)

    def _restore_network(self) -> None:
        """First of all: without the policy only the rules inside the slots hold a guest back."""
        if not restore_network(self._deps):
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

    def _stop_lost(self, look: Look) -> None:
        """End the rows whose files are gone. One that has an operation under way is waited for, and
        stays counted."""
        missing = lost_files.list_candidates(self._deps.settings.node_id, look.missing())
        for_long = self._seen.for_long("rows", missing)
        if self._seen.are_too_many(missing):
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
        node_id, orphans = self._deps.settings.node_id, look.orphans()
        stopped = seen_rows.list_stopped(node_id, orphans)
        for sandbox_id in (*self._seen.for_long("sandboxes", orphans - stopped),
                           *self._seen.some_for_long("stopped", stopped)):
            fault("reconcile.orphan_seen")
            if seen_rows.is_wanted(node_id, sandbox_id):
                continue
            log.warning("removing machine %s, which has no row or a stopped one", sandbox_id)
            try:
                self._deps.driver.destroy(sandbox_id)
            except VmBusy:
                log.info("machine %s is busy; next time", sandbox_id)
            except DriverError as error:  # it keeps no other from being removed
                log.error("machine %s could not be removed: %s", sandbox_id, error)

    def _remove_snapshots(self, kept: set[str]) -> None:
        node_id = self._deps.settings.node_id
        needed, used_up = needed_on_node.list_needed(node_id), needed_on_node.list_used_up(node_id)
        unwanted = (kept - needed) | used_up
        done_with = needed_on_node.list_known(unwanted)
        for snapshot_id in (*self._seen.for_long("snapshots", unwanted - done_with),
                            *self._seen.some_for_long("captures", done_with)):
            log.warning("removing snapshot %s, which nothing needs", snapshot_id)
            try:
                remove_unneeded(self._deps, snapshot_id)
            except DriverError as error:
                log.warning("snapshot %s could not be removed: %s", snapshot_id, error)
