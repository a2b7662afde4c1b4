"""Ends sandboxes whose files are gone from their node for good: `stopped`, with an error that says
so.

There is nothing left to do on the node, so the stop is begun and finished in one transaction, by
the operation protocol as every stop. The row is locked all the while: no wake can begin between the
last look and the end.
"""
from collections.abc import Callable, Collection

from config.settings import Settings
from models.database import database, now
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.operations.begin import begin_claimed, lock_sandbox
from services.reconciliation.seen_rows import RECONCILER
from services.sandboxes.outcomes import Outcome, finish

ERROR = "The sandbox's files are gone from its node, so it cannot be woken any more."
# The states in which a sandbox has files, and so can lose them.
HAS_FILES = (SandboxStatus.RUNNING, SandboxStatus.HIBERNATED)


def list_candidates(node_id: str, among: Collection[str]) -> set[str]:
    """Those of the ids `among` that must have files on this node, with or without an operation
    under way."""
    if not among:
        return set()
    rows = Sandbox.select(Sandbox.id).where(
        Sandbox.id.in_(among) & (Sandbox.node_id == node_id) & Sandbox.status.in_(HAS_FILES))
    return {sandbox_id for sandbox_id, in rows.tuples()}


def stop(settings: Settings, sandbox_id: str,
         is_gone: Callable[[], bool]) -> list[OutboxMessage] | None:
    """Make the sandbox `stopped` and return the messages to flush after the commit.

    None, and nothing changed, if an operation is under way, if it is stopped already, or if
    `is_gone` finds it after all.
    """
    with database.atomic():
        row = lock_sandbox(sandbox_id)
        if row is None or row.task is not None:
            return None
        if SandboxStatus(row.status) not in HAS_FILES or not is_gone():
            return None
        claimed = begin_claimed(settings, row, OperationKind.STOP, RECONCILER)
        values = {"stopped_at": now(), "error": ERROR}
        return finish(claimed, Outcome(True, SandboxStatus.STOPPED, sandbox=values, error=ERROR))
