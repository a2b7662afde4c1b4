"""Tells a node about an operation: the job's name, the queue of the node, and the message.

A message is only a hint. The worker that receives it claims the operation by its row, see
`services/operations/claims.py`.
"""
from models.operations import Operation, OutboxMessage
from models.snapshots import Snapshot
from models.states import Lane, OperationKind, SnapshotKind
from services.operations import outbox
from services.operations.transitions import TRANSITIONS


def job_name(kind: OperationKind) -> str:
    """Name of the job that announces an operation of this kind to its node."""
    return f"node.sandbox.{kind.value}"


def announce(operation: Operation) -> OutboxMessage:
    """Write the message that tells the node about an operation; ids only, no secrets."""
    return outbox.add(
        queue_of(operation),
        job_name(OperationKind(operation.kind)),
        {"sandbox_id": operation.sandbox_id, "op_seq": operation.op_seq},
    )


def queue_of(operation: Operation) -> str:
    """The queue of its node in which an operation is announced."""
    return queue_name(operation.node_id, Lane(operation.lane))


def queue_name(node_id: str, lane: Lane) -> str:
    """The queue of a node's lane."""
    return f"node.{node_id}.{lane.value}"


def worker_name(node_id: str, lane: Lane) -> str:
    """The worker of a node's lane, as it signs what it claims."""
    return f"{node_id}/{lane.value}"


def lane_of(node_id: str, kind: OperationKind, snapshot: Snapshot | None) -> Lane:
    """The lane of node `node_id` for an operation. The boot of a copy of an archive, or of another
    node's snapshot, reads that from the store, so it goes where archives go."""
    if kind is OperationKind.BOOT and snapshot and (
            snapshot.kind == SnapshotKind.FILES_ONLY or snapshot.node_id != node_id):
        return Lane.ARCHIVE
    return TRANSITIONS[kind].lane
