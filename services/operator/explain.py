"""What an operation or a sandbox is waiting for, in plain sentences for an operator."""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from config.settings import Settings
from models.database import connection, now
from models.nodes import Node
from models.operations import Operation, OutboxMessage
from models.sandboxes import Activity, Sandbox
from models.states import OPEN_STATES, OperationKind, OperationState, SandboxStatus
from models.users import User
from services.errors import NotFound
from services.events.record import rfc3339
from services.hosts import nodes
from services.operations.announcements import job_name, queue_of
from services.operations.transitions import describe
from services.operator.deploys import AppReport
from services.operator.listings import (
    OperationReport,
    SandboxReport,
    operation_report,
    sandbox_report,
)

# Messages in a queue; None if the broker does not say.
QueueLength = Callable[[str], int | None]


_STANDS = {
    OperationState.WAITING: "is waiting",
    OperationState.PENDING: "is pending",
    OperationState.RUNNING: "is running",
    OperationState.SUCCEEDED: "has succeeded",
    OperationState.FAILED: "has failed",
    OperationState.SUPERSEDED: "was superseded",
}


@dataclass(frozen=True)
class Explanation:
    """`sentences` for people; the rows they are about for machines."""

    sentences: list[str]
    sandbox: SandboxReport | None = None
    operation: OperationReport | None = None
    app: AppReport | None = None


def explain(settings: Settings, subject: str, queue_length: QueueLength) -> Explanation:
    """Explain the operation with the number `subject`, or the sandbox of that id and what it is at.

    Raises NotFound.
    """
    with connection():
        operation = _find_operation(subject)
        sandbox = Sandbox.get_or_none(
            Sandbox.id == (operation.sandbox_id if operation else subject))
        if sandbox is None:
            raise NotFound(f"There is neither a sandbox nor an operation {subject}.")
        about = Explainer(settings, queue_length)
        if operation is not None:
            sentences = list(about.operation(operation))
        else:
            operation = Operation.get_or_none(Operation.numbered(sandbox.id, sandbox.op_seq))
            sentences = [
                *about.sandbox(sandbox), *(about.operation(operation) if operation else ())
            ]
        if sandbox.status != SandboxStatus.STOPPED or (operation is not None
                                                       and operation.state in OPEN_STATES):
            sentences += about.node(operation.node_id if operation else sandbox.node_id)
        return Explanation(sentences, sandbox_report(sandbox),
                           operation_report(operation) if operation else None)


def _find_operation(subject: str) -> Operation | None:
    # Ids of sandboxes have letters in them; a number beyond a bigint is no operation's.
    if not (subject.isascii() and subject.isdigit() and len(subject) < 19):
        return None
    return Operation.get_or_none(Operation.id == int(subject))


class Explainer:
    """Makes the sentences, all as of one moment."""

    def __init__(self, settings: Settings, queue_length: QueueLength) -> None:
        self._settings = settings
        self._queue_length = queue_length
        self._present = now()

    def sandbox(self, row: Sandbox) -> Iterator[str]:
        """What is true of a sandbox."""
        email = User.get_by_id(row.owner_id).email
        yield (
            f"Sandbox {row.id} of {email} is {describe(row.status, row.task)} on node {row.node_id}"
            f" ({row.vcpus} vCPU, {row.mem_mb} MB).")
        if row.status == SandboxStatus.RUNNING and row.task is None and row.idle_at:
            calls = Activity.select().where(
                (Activity.sandbox_id == row.id) & (Activity.expires_at > self._present)).count()
            busy = (
                f"{calls} calls are in flight, which keep it awake"
                if calls
                else "no call is in flight"
            )
            yield f"It falls asleep {self._when(row.idle_at)} unless it is used; {busy}."
        if row.operator_note:
            yield f"Note: {row.operator_note}."
        if row.error:
            yield f"Its owner is told: {row.error}"

    def operation(self, row: Operation) -> Iterator[str]:
        """What an operation is waiting for, or how it ended."""
        asker = f" by the {row.requested_by}" if row.requested_by else ""
        yield (
            f"Operation {row.id}, the {row.kind} of {row.sandbox_id}, was asked for"
            f" {self._when(row.created_at)}{asker} and {_STANDS[OperationState(row.state)]}."
        )
        if row.note:
            yield f"Note: {row.note}."
        if row.state == OperationState.WAITING:
            yield from self._predecessor(row)
        elif row.state == OperationState.PENDING:
            yield from self._parked(row) if row.due_at else self._announced(row)
        elif row.state == OperationState.RUNNING:
            yield from self._held(row)
        else:
            yield from self._ended(row)
            return
        if row.kind == OperationKind.STOP:
            yield "A stop is never given up."
        else:
            yield f"It is given up {self._when(row.deadline_at)} if nobody works on it then."

    def _predecessor(self, row: Operation) -> Iterator[str]:
        before = Operation.get_or_none(Operation.id == row.after_id)
        if before is None:
            yield "It waits for an operation that is gone, so its deadline will end it."
            return
        yield f"It waits until operation {before.id} has succeeded, and fails with it:"
        yield from self.operation(before)

    def _announced(self, row: Operation) -> Iterator[str]:
        unsent = OutboxMessage.select().where(
            (OutboxMessage.job == job_name(OperationKind(row.kind)))
            & (OutboxMessage.payload == {"sandbox_id": row.sandbox_id, "op_seq": row.op_seq})
        ).exists()
        if unsent:
            yield (
                "No worker knows of it: its message waits for the broker, and the relay sends it"
                " when that is back."
            )
        yield f"No worker has taken it yet. {self._again(row.node_id, row.announce_at)}"
        yield self._queue(row)

    def _parked(self, row: Operation) -> Iterator[str]:
        if row.operator_error:
            yield f"The attempt before failed: {row.operator_error}."
        if row.waits_for:
            yield f"It waits for {row.waits_for}, since {self._when(row.wait_since)}."
        yield f"No worker has it now. It was put back after {self._tries(row)}."
        if row.due_at > self._present:
            yield f"It is taken up again {self._when(row.due_at)}."
        else:
            yield self._again(row.node_id, row.announce_at)
            yield self._queue(row)

    def _tries(self, row: Operation) -> str:
        return f"attempt {row.attempts} of {self._settings.operation_attempts}"

    def _held(self, row: Operation) -> Iterator[str]:
        tries = self._tries(row)
        if row.operator_error:
            yield f"The attempt before failed: {row.operator_error}."
        lease = row.lease_until
        if lease is not None and lease > self._present:
            yield (
                f"Worker {row.claimed_by} is at it ({tries}, begun {self._when(row.started_at)});"
                f" it renews its lease, which ends {self._when(lease)}.")
        else:
            yield (
                f"Worker {row.claimed_by} has it ({tries}) but is silent: its lease ended"
                f" {self._when(lease)}. {self._again(row.node_id, row.announce_at)}"
            )
            yield self._queue(row)

    def _ended(self, row: Operation) -> Iterator[str]:
        yield (
            f"It ended {self._when(row.finished_at)} after {row.attempts}"
            f" attempt{'s' if row.attempts != 1 else ''}."
        )
        if row.error:
            yield f"The owner is told: {row.error}"
        if row.operator_error:
            yield f"For operators: {row.operator_error}"

    def _again(self, node_id: str, announce_at: datetime) -> str:
        if node_id not in nodes.list_alive(self._settings):
            return "It is announced again once its node reports that it works."
        if announce_at > self._present:
            return f"It is announced again {self._when(announce_at)}."
        late = (self._present - announce_at).total_seconds()
        if late > 5 * self._settings.operation_sweep_s:
            return (
                f"It should have been announced again {self._when(announce_at)}: do the processes"
                " control and beat run?"
            )
        return "It is being announced again now."

    def _queue(self, row: Operation) -> str:
        return self._in_queue(queue_of(row))

    def _in_queue(self, queue: str) -> str:
        length = self._queue_length(queue)
        if length is None:
            return f"The broker does not answer, so nobody can be told over queue {queue}."
        return f"{length} messages are in queue {queue}" + (
            "; its worker is busy or does not run."
            if length else ", so its worker has taken what there was.")

    def node(self, node_id: str) -> Iterator[str]:
        """What of the node keeps its sandboxes waiting."""
        node = Node.get_or_none(Node.id == node_id)
        if node is None:
            yield f"There is no node {node_id} any more."
        elif node_id not in nodes.list_alive(self._settings):
            yield (
                f"Node {node_id} has been silent since {self._when(node.heartbeat_at)}: nothing is"
                " done there now."
            )
        elif node.lanes is not None and nodes.SANDBOX_LANE not in node.lanes:
            yield (
                f"The {nodes.SANDBOX_LANE.value} lane of node {node_id} does not start: nothing is"
                " done there now."
            )
        elif not nodes.is_open(node):
            closed = "closed" if not node.accepting else (
                f"being drained, which ends {self._when(node.draining_until)} or when it starts"
                " again")
            yield (
                f"Node {node_id} is {closed}: it starts no new sandboxes and wakes none, but ends"
                " what was begun."
            )

    def _when(self, moment: datetime | None) -> str:
        if moment is None:
            return "at no set time"
        seconds = (moment - self._present).total_seconds()
        distance = f"in {seconds:.0f} s" if seconds >= 0 else f"{-seconds:.0f} s ago"
        return f"{distance} ({rfc3339(moment)})"
