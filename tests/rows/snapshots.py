"""Snapshots of a running stack: taken over HTTP, looked at in their rows."""

from models.database import connection, now
from models.snapshots import Snapshot
from models.states import SnapshotState
from services.snapshots import deletion
from tests.stack.operator import told_operator
from tests.stack.waiting import becomes


def take(alice, sandbox_id, path="snapshot"):
    answer = alice.post(f"/v1/sandboxes/{sandbox_id}/{path}")
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def row(snapshot_id):
    with connection():
        return Snapshot.get_by_id(snapshot_id)


def make_due(snapshot_id):
    """As if the time until the next announcement had passed."""
    with connection():
        Snapshot.update(delete_due_at=now()).where(Snapshot.id == snapshot_id).execute()


def remove(sim_stack, deps, snapshot_id):
    """Delete it, and wait until it is gone for good."""
    deletion.delete(deps, snapshot_id)
    make_due(snapshot_id)
    becomes(lambda: row(snapshot_id).state, SnapshotState.DELETED)


def operator(sim_stack, *arguments):
    return told_operator(sim_stack.env, *arguments)
