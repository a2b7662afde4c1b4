"""The rows that a node compares with its host, and the repair of one that the host contradicts.

A row is read without its lock, so that the host can be looked at in peace. Whatever changes it
afterwards locks it and makes sure first that it is as it was seen: `lock_unchanged`.

Most sandboxes of a node are asleep, and agree with their host. Of these a tick reads the ids alone,
from an index; rows are read of those that are awake, and of those that the node has a question
about.
"""
from collections.abc import Callable, Collection
from dataclasses import dataclass

import peewee

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
    vm_ip: str


def list_settled(node_id: str, asleep: Collection[str]) -> list[SeenRow]:
    """The sandboxes of a node that no operation is about to change: all that are awake, and of
    those that sleep the ids in `asleep`."""
    with connection():
        seen = [*_settled(awake_query(node_id))]
        if asleep:
            sleeping = Sandbox.status == SandboxStatus.HIBERNATED
            seen += _settled(_columns().where(
                Sandbox.id.in_(asleep) & (Sandbox.node_id == node_id) & sleeping))
        return seen


def awake_query(node_id: str) -> peewee.ModelSelect:
    """What a node compares of the sandboxes that are neither asleep nor stopped."""
    at_rest = (SandboxStatus.HIBERNATED, SandboxStatus.STOPPED)
    return _columns().where((Sandbox.node_id == node_id) & Sandbox.status.not_in(at_rest))


def _columns() -> peewee.ModelSelect:
    return Sandbox.select(Sandbox.id, Sandbox.status, Sandbox.op_seq, Sandbox.operator_note,
                          Sandbox.vm_ip)


def _settled(query: peewee.ModelSelect) -> list[SeenRow]:
    return [
        SeenRow(sandbox_id, SandboxStatus(status), op_seq, note, vm_ip)
        for sandbox_id, status, op_seq, note, vm_ip in query.where(Sandbox.task.is_null()).tuples()
    ]


def list_wanted(node_id: str) -> set[str]:
    """Ids of the sandboxes that may have a machine on a node: not stopped, or being stopped."""
    with connection():
        # the cursor's rows as they are: peewee would take four times as long for thousands
        return {sandbox_id for sandbox_id, in database.execute(wanted_query(node_id))}


def wanted_query(node_id: str) -> peewee.ModelCompoundSelectQuery:
    """The ids of `list_wanted`. Two queries: no index fits the OR of them."""
    here = Sandbox.select(Sandbox.id).where(Sandbox.node_id == node_id)
    stopping = (Sandbox.status == SandboxStatus.STOPPED) & Sandbox.task.is_null(False)
    return here.where(Sandbox.status != SandboxStatus.STOPPED).union_all(here.where(stopping))


def list_stopped(node_id: str, among: Collection[str]) -> set[str]:
    """Those of the ids `among` whose row says that they are done with on a node: stopped, and
    nothing is under way."""
    if not among:
        return set()
    with connection():
        rows = Sandbox.select(Sandbox.id).where(
            Sandbox.id.in_(among) & (Sandbox.node_id == node_id)
            & (Sandbox.status == SandboxStatus.STOPPED) & Sandbox.task.is_null())
        return {row.id for row in rows}


def is_wanted(node_id: str, sandbox_id: str) -> bool:
    """True if `list_wanted` has this sandbox at present."""
    with connection():
        row = Sandbox.select(Sandbox.status, Sandbox.task).where(
            (Sandbox.id == sandbox_id) & (Sandbox.node_id == node_id)).get_or_none()
    return row is not None and (row.status != SandboxStatus.STOPPED or row.task is not None)


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


def begin_repair(settings: Settings, seen: SeenRow, kind: OperationKind,
                 is_needed: Callable[[], bool]) -> list[OutboxMessage] | None:
    """Begin the operation that makes the row true again, whatever its status; returns the messages
    to flush.

    None, and nothing begun, if the row has changed since it was seen, or if `is_needed`, asked
    under the row's lock, says that the host agrees with it: an operation may have ended since the
    host was listed.
    """
    with connection(), database.atomic():
        row = lock_unchanged(seen)
        if row is None or not is_needed():
            return None
        return begin(settings, row, kind, from_any=True)[1]


def write_note(seen: SeenRow, note: str | None) -> None:
    """Tell operators something about a sandbox, or that there is nothing to tell any more."""
    with connection():
        Sandbox.update(operator_note=note).where(Sandbox.id == seen.id).execute()
