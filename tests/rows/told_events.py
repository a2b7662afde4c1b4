"""Operations played through in the rows, and the events that they record."""
import json
from datetime import datetime

import pytest

from models.database import connection
from models.events import Event
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from services.errors import Unavailable
from services.operations import claims
from services.sandboxes import create, outcomes
from services.sandboxes.caller import Caller
from services.sandboxes.copies import capture as snapshots
from services.sandboxes.outcomes import Outcome
from services.sandboxes.requests import CreateRequest, LaunchOptions

OPTIONS = LaunchOptions()
RUNNING, HIBERNATED, STOPPED = (
    SandboxStatus.RUNNING, SandboxStatus.HIBERNATED, SandboxStatus.STOPPED,
)


def claim(sandbox_id):
    with connection():
        return claims.claim(sandbox_id, Sandbox.get_by_id(sandbox_id).op_seq, "n1/ops", 10.0)


def finish(sandbox_id, status=RUNNING, *, ok=True, error=None, **snapshot):
    with connection():
        outcomes.finish(claim(sandbox_id), Outcome(ok, status, error=error, snapshot=snapshot))


def begun(call, *arguments):
    """Begin an operation that nobody works on yet: the caller has waited in vain."""
    with pytest.raises(Unavailable):
        call(*arguments)


def boot(deps, owner):
    sandbox_id = create.create(deps, Caller(owner), CreateRequest(OPTIONS)).id
    finish(sandbox_id)
    return sandbox_id


def capture(deps, owner, sandbox_id):
    begun(snapshots.take, deps, Caller(owner), sandbox_id)
    finish(sandbox_id, state=SnapshotState.READY, rootfs_sha="ab" * 32, size_bytes=123)
    with connection():
        return Snapshot.select().where(Snapshot.source_sandbox_id == sandbox_id).order_by(
            Snapshot.id).get().id


def told(owner):
    """All that receivers would be told of an owner's things, in the order of `occurredAt`."""
    with connection():
        rows = list(Event.select().where(Event.owner_id == owner.id).order_by(Event.occurred_at))
    bodies = [json.loads(row.body) for row in rows]
    for row, body in zip(rows, bodies, strict=True):
        assert (body["id"], body["type"], body["ownerId"]) == (row.id, row.type, row.owner_id)
        assert datetime.fromisoformat(body["occurredAt"].replace("Z", "+00:00")) == row.occurred_at
    return bodies


def brief(owner):
    return [(body["type"], body["data"]) for body in told(owner)]
