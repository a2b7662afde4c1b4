"""Templates of machine shapes: wanted, baked one at a time on their node, remembered until they are
there.

1. A shape that a node should have is a row (`want`): asked for by its settings when it starts, or
by a create that had to boot cold. 2. The row is announced to the node's bulk lane, again and again
until it is baked. 3. The node bakes one at a time: a lock on the host says who bakes, so a row that
is `baking` while the lock is free was left by a dead worker and is queued anew
(`requeue_abandoned`). 4. A failed bake waits longer after each attempt. Creates never wait for any
of this.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from models.database import ROW_LOCK, connection, database, now
from models.operations import OutboxMessage
from models.states import BakeState
from models.warm_images import Bake
from services.hosts import nodes
from services.operations import outbox
from services.protocols import Deps

JOB = "node.template.bake"
# A queued bake that was announced this long ago (s) is announced again; another may be under way,
# or the message lost.
_ANNOUNCE_AGAIN_S = 30
_RETRY_S, _RETRY_LONGEST_S = 60, 3600
# A bake that its worker did not survive is begun again at once, but not more often than this.
_DEATHS = 3


@dataclass(frozen=True)
class BakeView:
    """How far the template of a shape is; `since` is when its phase, or its state, began."""

    node_id: str
    vcpus: int
    mem_mb: int
    state: BakeState
    phase: str
    since: datetime
    began_at: datetime | None
    took_s: float | None
    attempts: int
    error: str | None
    next_try_at: datetime | None
    image: str


def want(node_id: str, vcpus: int, mem_mb: int, *, afresh: bool = False) -> list[OutboxMessage]:
    """See to it that a shape whose template is not on `node_id` gets baked; nothing if that is
    under way already.

    One that failed waits for its time, unless `afresh` (the node has just started, perhaps with
    another image).
    """
    states = [BakeState.BAKED, *([BakeState.FAILED] if afresh else [])]
    present = now()
    lost = {
        "state": BakeState.QUEUED, "attempts": 0, "announce_at": present, "wanted_at": present,
        "phase_at": present
    }
    with database.atomic():
        Bake.insert(node_id=node_id, vcpus=vcpus, mem_mb=mem_mb,
                    announce_at=present).on_conflict_ignore().execute()
        Bake.update(**lost).where(_one(node_id, vcpus, mem_mb) & Bake.state.in_(states)).execute()
        return _announce(_one(node_id, vcpus, mem_mb) & (Bake.announce_at <= now()))


def known_shapes(node_id: str) -> set[tuple[int, int]]:
    """Shapes (vCPUs, MiB) that this node was ever asked to have."""
    return {(row.vcpus, row.mem_mb) for row in Bake.select().where(Bake.node_id == node_id)}


def announce_due(deps: Deps) -> int:
    """Tell live nodes of the bakes that wait, or are to be tried again; returns how many."""
    with connection():
        alive = nodes.list_alive(deps.settings)
        messages = _announce((Bake.announce_at <= now()) & Bake.node_id.in_(alive))
        outbox.flush(deps.queue, messages)
    return len(messages)


def announce_next(node_id: str) -> list[OutboxMessage]:
    """The node has just ended a bake: tell it of the one that has waited longest."""
    waiting = Bake.select().where((Bake.node_id == node_id) & (Bake.state == BakeState.QUEUED))
    first = waiting.order_by(Bake.wanted_at, Bake.vcpus, Bake.mem_mb).first()
    return _announce(_one(node_id, first.vcpus, first.mem_mb)) if first else []


def hasten(node_id: str) -> None:
    """The node's bulk lane has just started: what waits, or failed, is announced at once."""
    due = Bake.announce_at > now()
    Bake.update(announce_at=now()).where((Bake.node_id == node_id) & due).execute()


def claim(node_id: str, vcpus: int, mem_mb: int) -> bool:
    """Begin a bake that waits; call it with the host's lock held. False if there is nothing to
    do."""
    present = now()
    begun = {
        "state": BakeState.BAKING, "attempts": Bake.attempts + 1, "announce_at": None,
        "error": None, "phase": "starting", "phase_at": present, "started_at": present,
        "finished_at": None
    }
    waiting = _one(node_id, vcpus, mem_mb) & (Bake.state == BakeState.QUEUED)
    return bool(Bake.update(**begun).where(waiting).execute())


def report(node_id: str, vcpus: int, mem_mb: int, phase: str) -> None:
    """Say what is being done now."""
    Bake.update(phase=phase, phase_at=now()).where(_one(node_id, vcpus, mem_mb)).execute()


def done(node_id: str, vcpus: int, mem_mb: int, host_tuple: Mapping[str, str]) -> None:
    """The template has been baked; `host_tuple` is what it was made on."""
    _end(_one(node_id, vcpus, mem_mb), BakeState.BAKED, attempts=0, host_tuple=dict(host_tuple),
         announce_at=None)


def found(node_id: str, vcpus: int, mem_mb: int, host_tuple: Mapping[str, str]) -> None:
    """The node has looked and has the template already, made on `host_tuple`."""
    made_on = dict(host_tuple)
    Bake.insert(
        node_id=node_id, vcpus=vcpus, mem_mb=mem_mb, state=BakeState.BAKED, host_tuple=made_on
    ).on_conflict_ignore().execute()
    idle = Bake.state.in_((BakeState.QUEUED, BakeState.FAILED))
    _end(_one(node_id, vcpus, mem_mb) & idle, BakeState.BAKED, attempts=0, announce_at=None)
    Bake.update(host_tuple=made_on).where(_one(node_id, vcpus, mem_mb)).execute()


def failed(node_id: str, vcpus: int, mem_mb: int, error: str) -> None:
    """It did not work; `error` is for operators. The next try comes later after each attempt, an
    hour at most."""
    row = Bake.get_or_none(_one(node_id, vcpus, mem_mb))
    if row is not None:
        delay_s = min(_RETRY_S * 2 ** max(row.attempts - 1, 0), _RETRY_LONGEST_S)
        again = now() + timedelta(seconds=delay_s)
        _end(_one(node_id, vcpus, mem_mb), BakeState.FAILED, error=error, announce_at=again)


def refuse(node_id: str, vcpus: int, mem_mb: int, error: str) -> None:
    """No sandbox of this shape can ever be on the node, so its template is not made."""
    Bake.insert(node_id=node_id, vcpus=vcpus, mem_mb=mem_mb).on_conflict_ignore().execute()
    _end(_one(node_id, vcpus, mem_mb), BakeState.FAILED, error=error, announce_at=None)


def list_baking(node_id: str) -> list[Bake]:
    """The rows that say somebody is at work on them."""
    return list(Bake.select().where((Bake.node_id == node_id) & (Bake.state == BakeState.BAKING)))


def requeue_abandoned(seen: Bake) -> list[OutboxMessage]:
    """Queue the bake that a dead worker left behind: the host's lock was found free after its row
    had been read.

    One whose workers keep dying is put off like one that fails.
    """
    which = _one(seen.node_id, seen.vcpus, seen.mem_mb)
    with database.atomic():
        row = Bake.select().where(which & (Bake.state == BakeState.BAKING)).for_update(
            ROW_LOCK).get_or_none()
        if row is None or row.started_at != seen.started_at:
            return []
        if row.attempts >= _DEATHS:
            failed(row.node_id, row.vcpus, row.mem_mb,
                   f"its worker died in the middle of it, attempt {row.attempts}")
            return []
        _end(which, BakeState.QUEUED, announce_at=now())
        return _announce(which)


def list_all(node_id: str | None = None) -> list[BakeView]:
    """Every template that is there or wanted, of one node or of all."""
    which = Bake.select() if node_id is None else Bake.select().where(Bake.node_id == node_id)
    with connection():
        return [_view(row) for row in which.order_by(Bake.node_id, Bake.mem_mb, Bake.vcpus)]


def _view(row: Bake) -> BakeView:
    began, ended = row.started_at, row.finished_at
    took_s = (
        (ended - began).total_seconds()
        if began and ended and row.state == BakeState.BAKED
        else None
    )
    waiting = row.state in (BakeState.QUEUED, BakeState.FAILED)
    return BakeView(
        node_id=row.node_id, vcpus=row.vcpus, mem_mb=row.mem_mb, state=BakeState(row.state),
        phase=row.phase, since=row.phase_at, began_at=began, took_s=took_s, attempts=row.attempts,
        error=row.error, next_try_at=row.announce_at if waiting else None,
        image=str(row.host_tuple.get("image", "")),
    )


def _one(node_id: str, vcpus: int, mem_mb: int) -> Any:
    return (Bake.node_id == node_id) & (Bake.vcpus == vcpus) & (Bake.mem_mb == mem_mb)


def _end(which: Any, state: BakeState, **values: Any) -> None:
    present = now()
    ended = {
        "state": state, "phase": "", "phase_at": present, "finished_at": present, "error": None
    }
    Bake.update(**ended | values).where(which).execute()


def _announce(which: Any) -> list[OutboxMessage]:
    """Write the messages for those of `which` that wait, and when to say so again; ids only."""
    again = now() + timedelta(seconds=_ANNOUNCE_AGAIN_S)
    waiting = Bake.state.in_((BakeState.QUEUED, BakeState.FAILED))
    with database.atomic():
        rows = Bake.update(state=BakeState.QUEUED,
                           announce_at=again).where(waiting & which).returning(Bake).execute()
        shapes = [(row.node_id, {"vcpus": row.vcpus, "mem_mb": row.mem_mb}) for row in rows]
        return [outbox.add(f"node.{node_id}.bulk", JOB, shape) for node_id, shape in shapes]
