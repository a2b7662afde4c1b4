"""Warm images: the memory images of machine shapes that a node keeps, so that a create restores one
instead of booting.

1. A shape that a node should have is a row (`want`): asked for by its settings when it starts, or
by a create that had to boot cold. 2. The row is announced to the node's bulk lane, again and again
until its image is baked. 3. The node bakes one at a time: a lock on the host says who bakes, so a
row that is `baking` while the lock is free was left by a dead worker and is queued anew
(`requeue_abandoned`). 4. A failed bake waits longer after each attempt. Creates never wait for any
of this.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models.database import ROW_LOCK, connection, database, now
from models.operations import OutboxMessage
from models.states import WarmImageState
from models.warm_images import WarmImage
from services.operations.due_work import DueWork

JOB = "node.warm_image.bake"
_WAITING = (WarmImageState.QUEUED, WarmImageState.FAILED)
BAKES = DueWork(
    model=WarmImage,
    due=WarmImage.announce_at,
    waiting=WarmImage.state.in_(_WAITING),
    key=(WarmImage.node_id, WarmImage.vcpus, WarmImage.mem_mb, WarmImage.presets),
    job=JOB,
    payload=lambda row: {"vcpus": row.vcpus, "mem_mb": row.mem_mb, "presets": row.presets},
    announce_again_s=30,
    first_pause_s=60,
    longest_pause_s=3600,
    marks={"state": WarmImageState.QUEUED},
)
# A bake that its worker did not survive is begun again at once, but not more often than this.
_DEATHS = 3


@dataclass(frozen=True)
class Kind:
    """Which warm image: of what shape (MiB), on which node, with the agent presets or without."""

    node_id: str
    vcpus: int
    mem_mb: int
    presets: bool = False


@dataclass(frozen=True)
class WarmImageView:
    """How far the warm image of a shape is; `since` is when its phase, or its state, began."""

    node_id: str
    vcpus: int
    mem_mb: int
    presets: bool
    state: WarmImageState
    phase: str
    since: datetime
    began_at: datetime | None
    took_s: float | None
    attempts: int
    error: str | None
    next_try_at: datetime | None
    image: str


def want(kind: Kind, *, afresh: bool = False) -> list[OutboxMessage]:
    """See to it that a warm image that is not on its node is baked; nothing if that is under way
    already.

    One that failed waits for its time, unless `afresh` (the node has just started, perhaps with
    another image).
    """
    states = [WarmImageState.BAKED, *([WarmImageState.FAILED] if afresh else [])]
    present = now()
    queued = {
        "state": WarmImageState.QUEUED, "attempts": 0, "announce_at": present, "wanted_at": present,
        "phase_at": present
    }
    with database.atomic():
        _insert(kind, announce_at=present)
        WarmImage.update(**queued).where(
            _one(kind) & WarmImage.state.in_(states)).execute()
        return BAKES.announce(_one(kind) & (WarmImage.announce_at <= now()))


def known_kinds(node_id: str) -> set[Kind]:
    """The warm images that this node was ever asked to have."""
    return {_kind(row) for row in WarmImage.select().where(WarmImage.node_id == node_id)}


def announce_next(node_id: str) -> list[OutboxMessage]:
    """The node has just ended a bake: tell it of the one that has waited longest. Those with the
    agent presets come last, because an image may have to be built first."""
    waiting = WarmImage.select().where(
        (WarmImage.node_id == node_id) & (WarmImage.state == WarmImageState.QUEUED))
    first = waiting.order_by(WarmImage.presets, WarmImage.wanted_at, WarmImage.vcpus,
                             WarmImage.mem_mb).first()
    return BAKES.announce(_one(_kind(first))) if first else []


def claim(kind: Kind) -> bool:
    """Begin a bake that waits; call it with the host's lock held. False if there is nothing to
    do, or if one with the agent presets has to let another go first."""
    plain = (WarmImage.node_id == kind.node_id) & ~WarmImage.presets
    queued = WarmImage.state == WarmImageState.QUEUED
    if kind.presets and WarmImage.select().where(plain & queued).exists():
        return False
    present = now()
    begun = {
        "state": WarmImageState.BAKING, "attempts": WarmImage.attempts + 1, "announce_at": None,
        "error": None, "phase": "starting", "phase_at": present, "started_at": present,
        "finished_at": None
    }
    return bool(WarmImage.update(**begun).where(_one(kind) & queued).execute())


def report(kind: Kind, phase: str) -> None:
    """Say what is being done now."""
    WarmImage.update(phase=phase, phase_at=now()).where(_one(kind)).execute()


def done(kind: Kind, host_tuple: Mapping[str, str]) -> None:
    """The image has been baked; `host_tuple` is what it was made on."""
    _end(_one(kind), WarmImageState.BAKED, attempts=0,
         host_tuple=dict(host_tuple), announce_at=None)


def found(kind: Kind, host_tuple: Mapping[str, str]) -> None:
    """The node has looked and has the image already, made on `host_tuple`."""
    made_on, which = dict(host_tuple), _one(kind)
    _insert(kind, state=WarmImageState.BAKED, host_tuple=made_on)
    _end(which & BAKES.waiting, WarmImageState.BAKED, attempts=0, announce_at=None)
    WarmImage.update(host_tuple=made_on).where(which).execute()


def failed(kind: Kind, error: str) -> None:
    """It did not work; `error` is for operators. The next try comes later after each attempt, an
    hour at most."""
    row = WarmImage.get_or_none(_one(kind))
    if row is not None:
        again = BAKES.next_try_at(max(row.attempts - 1, 0))
        _end(_one(kind), WarmImageState.FAILED, error=error, announce_at=again)


def refuse(kind: Kind, error: str) -> None:
    """No sandbox of this shape can ever be on the node, so its image is not made."""
    _insert(kind)
    _end(_one(kind), WarmImageState.FAILED, error=error, announce_at=None)


def list_baking(node_id: str) -> list[WarmImageView]:
    """Those that a worker is said to be baking."""
    return [view for view in list_all(node_id) if view.state is WarmImageState.BAKING]


def requeue_abandoned(seen: WarmImageView) -> list[OutboxMessage]:
    """Queue the bake that a dead worker left behind: the host's lock was found free after its row
    had been read.

    One whose workers keep dying is put off like one that fails.
    """
    which = _one(_kind(seen))
    baking = which & (WarmImage.state == WarmImageState.BAKING)
    with database.atomic():
        row = WarmImage.select().where(baking).for_update(ROW_LOCK).get_or_none()
        if row is None or row.started_at != seen.began_at:
            return []
        if row.attempts >= _DEATHS:
            failed(_kind(row), f"its worker died in the middle of it, attempt {row.attempts}")
            return []
        _end(which, WarmImageState.QUEUED, announce_at=now())
        return BAKES.announce(which)


def list_all(node_id: str | None = None) -> list[WarmImageView]:
    """Every warm image that is there or wanted, of one node or of all."""
    rows = WarmImage.select().order_by(WarmImage.node_id, WarmImage.presets, WarmImage.mem_mb,
                                       WarmImage.vcpus)
    if node_id is not None:
        rows = rows.where(WarmImage.node_id == node_id)
    with connection():
        return [_view(row) for row in rows]


def _view(row: WarmImage) -> WarmImageView:
    began, ended = row.started_at, row.finished_at
    took_s = (
        (ended - began).total_seconds()
        if began and ended and row.state == WarmImageState.BAKED
        else None
    )
    waiting = row.state in _WAITING
    return WarmImageView(
        node_id=row.node_id, vcpus=row.vcpus, mem_mb=row.mem_mb, presets=row.presets,
        state=WarmImageState(row.state), phase=row.phase, since=row.phase_at, began_at=began,
        took_s=took_s, attempts=row.attempts, error=row.error,
        next_try_at=row.announce_at if waiting else None,
        image=str(row.host_tuple.get("image", "")),
    )


def _insert(kind: Kind, **values: Any) -> None:
    """Write the row of a warm image unless it is there."""
    WarmImage.insert(node_id=kind.node_id, vcpus=kind.vcpus, mem_mb=kind.mem_mb,
                     presets=kind.presets, **values).on_conflict_ignore().execute()


def _kind(row: Any) -> Kind:
    return Kind(row.node_id, row.vcpus, row.mem_mb, row.presets)


def _one(kind: Kind) -> Any:
    shape = (WarmImage.vcpus == kind.vcpus) & (WarmImage.mem_mb == kind.mem_mb)
    return (WarmImage.node_id == kind.node_id) & shape & (WarmImage.presets == kind.presets)


def _end(which: Any, state: WarmImageState, **values: Any) -> None:
    present = now()
    ended = {
        "state": state, "phase": "", "phase_at": present, "finished_at": present, "error": None
    }
    WarmImage.update(**ended | values).where(which).execute()
