"""Moves a run from a node that is no place for it to a healthy one (contract, Deploy rule 8).

1. No place is a node that does not report, is closed, or is short of disk space; a run that
somebody holds is left to them until their lease is over. 2. A peer can build what is in the object
store: an archive, or a disk that was uploaded. The lane that boots its builder has to work there.
Without such a peer with room the run waits until its deadline, and `operator_error` says for what.
3. The run moves by compare-and-set on its node and epoch and gets a new epoch: whatever the old
node still does counts for nothing. Its machines there are stopped, once that node is back. 4. What
is stored already needs no builder: only the last step is left, on any node. 5. As long as nothing
was begun on the peer, the run returns to the node of its snapshot once that is well again.
"""
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from config.settings import Settings
from models.database import ROW_LOCK, connection, database, now
from models.deploys import DeployRun
from models.operations import OutboxMessage
from models.snapshots import Snapshot
from models.states import OPEN_RUN_STATES, OperationKind, RunState, RunStep, SnapshotKind
from services.deploys import logs, runs
from services.deploys.builder_removal import stop_builder
from services.deploys.builder_size import builder_size
from services.hosts import placement
from services.operations import announcements, outbox
from services.protocols import Deps


@dataclass(frozen=True)
class Move:
    """A run of `slug` that has moved between two nodes, and why."""

    slug: str
    source: str
    target: str
    reason: str


class _Hosts:
    """What is true of the nodes at one tick, each asked about once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.size = builder_size(settings)
        self.find_silence = lru_cache(None)(partial(placement.find_silence, settings))
        self.find_refusal = lru_cache(None)(placement.find_refusal)
        self._list_with_room = lru_cache(None)(partial(
            placement.list_with_room, settings, self.size.vcpus, self.size.mem_mb, runs.LANE))
        self._list_healthy = lru_cache(None)(self._list_without_reason)

    def list_peers(self, row: DeployRun, taken: Snapshot) -> list[str]:
        """Where the run can go on, the best first."""
        nodes = (self._list_healthy() if row.step == RunStep.STAGE
                 else self._list_with_room(taken.image_key))
        return [each for each in nodes
                if each != row.node_id and self.find_still_lane(row, each, taken) is None]

    def _list_without_reason(self) -> list[str]:
        """Nodes that no run would have to leave, whatever room they have."""
        return [each for each in placement.list_by_load(self._settings)
                if (self.find_silence(each, runs.LANE) or self.find_refusal(each, 0)) is None]

    def find_still_lane(self, row: DeployRun, node_id: str, taken: Snapshot) -> str | None:
        """That the lane of the node that would boot the run's builder does not work; None if it
        does, or none is needed."""
        if row.step == RunStep.STAGE:
            return None
        return self.find_silence(node_id,
                                 announcements.lane_of(node_id, OperationKind.BOOT, taken))


def take_over(deps: Deps) -> list[Move]:
    """Move the runs that can be, and say of the others what they wait for; returns the moves."""
    moves, hosts = [], _Hosts(deps.settings)
    with connection():
        for row in runs.unheld_query(now()):
            move = _decide(hosts, row)
            if move is not None:
                messages = _move(deps, row, move)
                if messages is not None:
                    moves.append(move)
                    outbox.flush(deps.queue, messages)
    return moves


def _decide(hosts: _Hosts, row: DeployRun) -> Move | None:
    """Where a run is to go; None if it stays."""
    is_begun = row.builder_sandbox_id is not None or row.step != RunStep.BUILD
    silence = hosts.find_silence(row.node_id, runs.LANE)
    reason = silence or hosts.find_refusal(row.node_id, 0 if is_begun else hosts.size.mem_mb)
    if reason is None and is_begun:
        return None
    taken = Snapshot.get_or_none(Snapshot.id == row.snapshot_id)
    if taken is None:
        return None  # its worker finds that out
    is_anywhere = taken.kind == SnapshotKind.FILES_ONLY or row.step == RunStep.STAGE
    home = row.node_id if is_anywhere else str(taken.node_id)
    if not is_begun:
        reason = reason or hosts.find_still_lane(row, row.node_id, taken)
    if reason is None and home == row.node_id:
        return None
    peers = hosts.list_peers(row, taken)
    if home in peers:
        return Move(row.slug, row.node_id, home, reason or f"Node {home} has its snapshot.")
    if reason is None:
        return None
    if peers and (is_anywhere or taken.uploaded_to_store):
        return Move(row.slug, row.node_id, peers[0], reason)
    if silence or not is_begun:
        _say(row, f"{reason} {_wants(row, taken, home)}")
    return None


def _wants(row: DeployRun, taken: Snapshot, home: str) -> str:
    """What there would have to be, for a run that stays, to go on elsewhere."""
    if row.step == RunStep.STAGE:
        return "No other node works on deploys at present."
    if taken.kind == SnapshotKind.FILES_ONLY or taken.uploaded_to_store:
        return "No other node has room for a builder and boots it at present."
    return f"Its snapshot is on node {home} alone, not in the object store yet."


def _say(row: DeployRun, waits_for: str) -> None:
    """Tell operators what the run waits for."""
    DeployRun.update(operator_error=waits_for).where(_unchanged(row)).execute()


def _move(deps: Deps, row: DeployRun, move: Move) -> list[OutboxMessage] | None:
    """Compare and set; None if the run is not what it was."""
    columns = {
        "node_id": move.target, "epoch": row.epoch + 1, "state": RunState.QUEUED, "attempts": 0,
        "claimed_by": None, "lease_until": None, "builder_sandbox_id": None,
        "runtime_sandbox_id": None,
        "operator_error": f"Moved from node {move.source}: {move.reason}",
    }
    with database.atomic():
        # Until now a worker whose lease is over may have noted a builder: its epoch still counts.
        locked = DeployRun.select().where(_unchanged(row)).for_update(ROW_LOCK).get_or_none()
        if locked is None:
            return None
        if locked.step != RunStep.STAGE:
            columns |= {"step": RunStep.BUILD, "manifest": None}
            logs.begin_anew(locked.id)
        DeployRun.update(columns).where(DeployRun.id == locked.id).execute()
        return stop_builder(deps, locked) + runs.announce(locked)


def _unchanged(row: DeployRun) -> Any:
    return ((DeployRun.id == row.id) & (DeployRun.epoch == row.epoch)
            & (DeployRun.node_id == row.node_id) & DeployRun.state.in_(OPEN_RUN_STATES)
            & runs.unheld(now()))
