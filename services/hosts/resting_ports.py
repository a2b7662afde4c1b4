"""Keeps the host ports of a stopped sandbox from the next one for a while.

Whoever talked to a sandbox may go on for some seconds after it is stopped: connections are kept,
addresses remembered.
"""
from datetime import timedelta

from guest.agent.protocol import AGENT_PORT
from models.database import now
from models.nodes import PortBinding, RestingPort


def release_ports(sandbox_id: str) -> None:
    """Let the host ports of a sandbox that is gone from its host rest. Its agent's is free at once:
    only we go there, and look its number up each time."""
    released = list(PortBinding.delete().where(PortBinding.sandbox_id == sandbox_id)
                    .returning(PortBinding).execute())
    resting = [{"node_id": row.node_id, "host_port": row.host_port, "released_at": now()}
               for row in released if row.guest_port != AGENT_PORT]
    if resting:
        RestingPort.insert_many(resting).on_conflict(
            conflict_target=[RestingPort.node_id, RestingPort.host_port],
            preserve=[RestingPort.released_at]).execute()


def resting_ports(node_id: str, rest_s: float) -> set[int]:
    """The ports of a node that nobody gets yet; those that have rested for `rest_s` seconds are
    forgotten. The node's row is locked."""
    rested = RestingPort.released_at < now() - timedelta(seconds=rest_s)
    RestingPort.delete().where((RestingPort.node_id == node_id) & rested).execute()
    return {row.host_port for row in RestingPort.select().where(RestingPort.node_id == node_id)}
