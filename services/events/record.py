"""Events are recorded in the transaction of the change they tell of: both are there, or neither.

1. `record` takes a lock of the subject, so that of two events of one sandbox the later one has the
later `occurredAt`, on whatever host it was recorded. 2. The body is made once; every attempt sends
and signs that very text. 3. Who is told is decided later, by `services/events/deliveries.py`: the
hosts that record know no receivers.
"""
import json
import uuid
from datetime import datetime, timezone

from models import locks
from models.database import database
from models.events import Event
from models.locks import LockClass
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import CAPTURES, OWN_KINDS, OperationKind, SandboxStatus
from services.events.types import (
    Boot,
    DeployFailed,
    DeploySucceeded,
    EventData,
    EventType,
    SandboxStarted,
    SandboxStopped,
    SnapshotRecorded,
    SnapshotUploaded,
    StopReason,
)


def record(owner_id: str, subject: str, data: EventData) -> Event:
    """Write an event into the current transaction; `subject` is the sandbox's id or the deploy's
    slug."""
    event_id = f"evt_{uuid.uuid4()}"
    occurred_at = _next_moment(subject)
    body = {
        "id": event_id,
        "type": data.TYPE.value,
        "ownerId": owner_id,
        "occurredAt": rfc3339(occurred_at),
        "data": data.to_json(),
    }
    return Event.create(
        id=event_id,
        type=data.TYPE,
        owner_id=owner_id,
        subject=subject,
        occurred_at=occurred_at,
        body=json.dumps(body, separators=(",", ":")),
    )


def _next_moment(subject: str) -> datetime:
    """The database's time in whole milliseconds, and later than every other event of the subject.

    The lock lasts until the commit. It needs a statement of its own: what others committed
    meanwhile is seen by the next one only.
    """
    if not database.in_transaction():
        raise RuntimeError("an event is recorded in the transaction of the change it tells of")
    locks.take_for_transaction(LockClass.EVENT_SUBJECT, subject)
    moment: datetime = database.execute_sql(
        "SELECT GREATEST(date_trunc('milliseconds', clock_timestamp()),"
        " (SELECT max(occurred_at) FROM events WHERE subject = %s) + interval '1 millisecond')",
        (subject,),
    ).fetchone()[0]
    return moment


def rfc3339(moment: datetime) -> str:
    """An aware time as text, in UTC, with milliseconds and `Z`."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def operation_finished(operation: Operation, sandbox: Sandbox, status: SandboxStatus,
                       error: str | None, *, ok: bool) -> None:
    """Record what the end of an operation means to receivers, if anything; `sandbox` is the row as
    it was before."""
    if status is SandboxStatus.STOPPED:
        sandbox_stopped(operation.sandbox_id, _stop_reason(operation, error, ok=ok), error)
    elif ok and operation.kind == OperationKind.BOOT:
        sandbox_started(sandbox, operation.snapshot_id)
    elif ok and operation.kind in CAPTURES and operation.snapshot_id:
        snapshot_recorded(operation.snapshot_id)
        # which goes to the store at once, past the node's disk
        if operation.kind == OperationKind.ARCHIVE:
            snapshot_uploaded(operation.snapshot_id)


def _stop_reason(operation: Operation, error: str | None, *, ok: bool) -> StopReason:
    if not ok:
        return StopReason.BOOT_FAILED
    if error is not None:
        return StopReason.FILES_LOST
    return StopReason.STOPPED_BY_OPERATOR if operation.requested_by else StopReason.DELETED


def sandbox_started(row: Sandbox, snapshot_id: str | None) -> Event | None:
    """A sandbox has booted, from a snapshot if one is given, and is reachable. A sandbox of
    the service's own is no event."""
    if row.kind in OWN_KINDS:
        return None
    taken = Snapshot.get_by_id(snapshot_id) if snapshot_id else None
    data = SandboxStarted(
        sandbox_id=row.id,
        node_id=row.node_id,
        boot=Boot.FORK if taken else Boot.COLD,
        source_sandbox_id=taken.source_sandbox_id if taken else None,
        # The capture that carries a fork of a live sandbox is nobody's to use, and gone in a
        # moment.
        snapshot_id=taken.id if taken and not taken.transient else None,
    )
    return record(row.owner_id, row.id, data)


def sandbox_stopped(sandbox_id: str, reason: StopReason, error: str | None) -> Event | None:
    """The sandbox has just become `stopped`, if its row says so; it stops once, so only the first
    call counts."""
    row = Sandbox.get_by_id(sandbox_id)
    told = Event.select().where((Event.subject == sandbox_id)
                                & (Event.type == EventType.SANDBOX_STOPPED))
    if row.kind in OWN_KINDS or row.status != SandboxStatus.STOPPED or told.exists():
        return None
    return record(row.owner_id, row.id, SandboxStopped(row.id, row.node_id, reason, error))


def snapshot_recorded(snapshot_id: str) -> Event | None:
    """The snapshot is durable on its node; None for the transient capture of a fork, which is no
    event."""
    return _record_snapshot(SnapshotRecorded, snapshot_id)


def snapshot_uploaded(snapshot_id: str) -> Event | None:
    """The snapshot's root file system is in the object store; call it in the transaction that says
    so in the row."""
    return _record_snapshot(SnapshotUploaded, snapshot_id)


def _record_snapshot(data: type[SnapshotRecorded] | type[SnapshotUploaded],
                     snapshot_id: str) -> Event | None:
    row = Snapshot.get_by_id(snapshot_id)
    if row.transient:
        return None
    told = data(
        snapshot_id=row.id,
        source_sandbox_id=row.source_sandbox_id,
        node_id=row.node_id,
        kind=row.kind,
        rootfs_sha=row.rootfs_sha,
        size_bytes=row.size_bytes,
        tarball_size_bytes=row.tarball_size_bytes,
    )
    return record(row.owner_id, row.source_sandbox_id, told)


def deploy_succeeded(owner_id: str, slug: str, run_id: str, deploy_intent_id: str | None) -> Event:
    """The serving version has changed; call it in the transaction of the change."""
    return record(owner_id, slug, DeploySucceeded(deploy_intent_id, slug, run_id))


def deploy_failed(owner_id: str, slug: str, run_id: str, deploy_intent_id: str | None,
                  error: str) -> Event:
    """The deploy has ended without changing what is served; `error` is for the one who asked for
    it."""
    return record(owner_id, slug, DeployFailed(deploy_intent_id, slug, run_id, error))
