"""The rows that a node compares with its host, and the repair of one that the host contradicts.

A row is read without its lock, so that the host can be looked at in peace. Whatever changes it
afterwards locks it and makes sure first that it is as it was seen: `lock_unchanged`.
"""
from dataclasses import dataclass

from config.settings import Settings
from models.database import connection, database
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.operations.begin import begin, lock_sandbox

# Who asked for, and held, the operations that are written here.
RECONCILER = "reconciler"


@dataclass(frozen=True)
class SeenRow:
    """A sandbox without an operation under way, as its row was when the node asked."""

    id: str
    status: SandboxStatus
    op_seq: int
    operator_note: str | None


def list_settled(node_id: str) -> list[SeenRow]:
    """The sandboxes of a node that are not stopped and that no operation is about to change."""
    with connection():
        rows = Sandbox.select().where((Sandbox.node_id == node_id)
                                      & (Sandbox.status != SandboxStatus.STOPPED)
                                      & Sandbox.task.is_null())
        return [
            SeenRow(row.id, SandboxStatus(row.status), row.op_seq, row.operator_note)
            for row in rows
        ]


def list_wanted(node_id: str) -> set[str]:
    """Ids of the sandboxes that may have a machine on a node: not stopped, or being stopped."""
    with connection():
        rows = Sandbox.select(Sandbox.id).where(
            (Sandbox.node_id == node_id)
            & ((Sandbox.status != SandboxStatus.STOPPED) | Sandbox.task.is_null(False)))
        return {row.id for row in rows}


def lock_unchanged(seen: SeenRow) -> Sandbox | None:
    """The row, locked for the rest of the transaction, if it still is as it was seen."""
    row = lock_sandbox(seen.id)
    if row is None or row.task is not None:
        return None
    return row if (row.op_seq, row.status) == (seen.op_seq, seen.status) else None


def is_unchanged(seen: SeenRow) -> bool:
    """True if the row is as it was seen."""
    with connection(), database.atomic():
        return lock_unchanged(seen) is not None


def begin_repair(settings: Settings, seen: SeenRow,
                 kind: OperationKind) -> list[OutboxMessage] | None:
    """Begin the operation that makes the row true again, whatever its status; returns the messages
    to flush. None, and nothing begun, if the row has changed since it was seen."""
    with connection(), database.atomic():
        row = lock_unchanged(seen)
        return None if row is None else begin(settings, row, kind, from_any=True)[1]


def write_note(seen: SeenRow, note: str | None) -> None:
    """Tell operators something about a sandbox, or that there is nothing to tell any more."""
    with connection():
        Sandbox.update(operator_note=note).where(Sandbox.id == seen.id).execute()
