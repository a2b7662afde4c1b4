"""Keeps the host ports of a stopped sandbox from the next one for a while.

Whoever talked to a sandbox may go on for some seconds after it is stopped: connections are kept,
addresses remembered.
"""
from datetime import timedelta
from typing import Any

from guest.agent.protocol import AGENT_PORT
from models.database import connection, now
from models.nodes import PortBinding, RestingPort
from models.operations import Operation
from models.states import OperationState


def release_ports(sandbox_id: str) -> None:
    """Let the host ports of a sandbox that is gone from its host rest. Its agent's is free at once,
    since only we go there, and look its number up each time; unless a worker of the node may not
    have heard yet that it has lost the sandbox, and forward the port once more."""
    released = list(PortBinding.delete().where(PortBinding.sandbox_id == sandbox_id)
                    .returning(PortBinding).execute())
    unheard = Operation.select().where((Operation.sandbox_id == sandbox_id) & Operation.state.in_(
        (OperationState.SUPERSEDED, OperationState.FAILED))).exists()
    rest = [{"node_id": row.node_id, "host_port": row.host_port, "owner_id": row.owner_id,
             "released_at": now()}
            for row in released if unheard or row.guest_port != AGENT_PORT]
    if rest:
        RestingPort.insert_many(rest).on_conflict(
            conflict_target=[RestingPort.node_id, RestingPort.host_port],
            preserve=[RestingPort.released_at, RestingPort.owner_id]).execute()


def resting(since: Any) -> Any:
    """The condition on released ports that nobody gets yet: those released after `since`."""
    return RestingPort.released_at > since


def forget_rested(rest_s: float) -> None:
    """Forget the ports that have rested for `rest_s` seconds."""
    with connection():
        RestingPort.delete().where(~resting(now() - timedelta(seconds=rest_s))).execute()
