"""Decides whether a node has host ports for a sandbox, and whether its owner may have them: one
owner holds at most half of each range of a node, so that nobody uses up another's.

Ports that rest count as held, both of the node and of the owner. Call it with the node's row
locked, so that what is counted stays so.
"""
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import peewee

from config.settings import Settings
from models.database import database, now
from models.nodes import Node, PortBinding, RestingPort
from models.row import Row, Statement
from services.hosts.resting_ports import resting

# The part of a node's ports for guests' agents, and of those for tenants, that one owner may hold.
OWNER_SHARE = 0.5


@dataclass(frozen=True)
class PortsWanted:
    """The host ports that somebody wants at once: for `agents` of guests, and for `guest_ports` of
    tenants. With an `owner_id` they are of that owner's share."""

    owner_id: str | None = None
    guest_ports: int = 0
    agents: int = 1


def agents_range(node: Node) -> range:
    """The host ports that lead to agents of guests: reached by ourselves only."""
    if node.agent_port_low is None:
        return tenants_range(node)
    return range(node.agent_port_low, node.agent_port_high + 1)


def tenants_range(node: Node) -> range:
    """The host ports that lead to all other ports of guests."""
    return range(node.host_port_low, node.host_port_high + 1)


def most_of(ports: range) -> int:
    """How many of a range one owner may hold. Pure."""
    return max(1, math.floor(len(ports) * OWNER_SHARE))


def find_shortage(settings: Settings, node: Node, wanted: PortsWanted) -> str:
    """Why the ports cannot be had on the node, in a sentence; empty if they can."""
    since = now() - timedelta(seconds=settings.port_rest_s)
    for ports, count in _by_range(node, wanted):
        held = _HELD.find(node.id, ports[0], ports[-1], since, wanted.owner_id or "")
        free, own = len(ports) - held.bound - held.resting, held.own_bound + held.own_resting
        if count > free:
            have = f"only {free}" if free > 0 else "no"
            return f"Node {node.id} has {have} free host ports."
        if wanted.owner_id is not None and own + count > most_of(ports):
            return (f"The account holds {own} host ports of node {node.id}, of which one account"
                    f" may hold {most_of(ports)}; those of deleted sandboxes count for a while.")
    return ""


def _by_range(node: Node, wanted: PortsWanted) -> Iterator[tuple[range, int]]:
    if node.agent_port_low is None:
        needed = [(tenants_range(node), wanted.agents + wanted.guest_ports)]
    else:
        needed = [(agents_range(node), wanted.agents), (tenants_range(node), wanted.guest_ports)]
    return ((ports, count) for ports, count in needed if count)


def _held(node_id: Any, low: Any, high: Any, since: Any, owner_id: Any) -> Any:
    first, last = (peewee.Value(port, converter=False) for port in (low, high))

    def count(model: Any, *conditions: Any) -> Any:
        return model.select(peewee.fn.COUNT(model.host_port)).where(
            (model.node_id == node_id) & model.host_port.between(first, last), *conditions)

    rests = resting(since)
    return peewee.Select(columns=[
        count(PortBinding).alias("bound"),
        count(RestingPort, rests).alias("resting"),
        count(PortBinding, PortBinding.owner_id == owner_id).alias("own_bound"),
        count(RestingPort, rests, RestingPort.owner_id == owner_id).alias("own_resting"),
    ]).bind(database)


_HELD = Statement(Row, _held, values=5)
