"""Decides which nodes are told of work: those that have reported lately, by a lane that works.

What waits on a silent node, or for a lane that does not work, stays a row. Its due time is past
when that is back, so the next sweep announces it; until then a message would only lie in a queue
that nobody empties.

When a node has reported is written, and read, by the database's clock: those of the hosts may
differ.
"""
from typing import Any

import peewee

from models.nodes import Node


def reports(within_s: Any) -> Any:
    """The condition on nodes that have reported in the last so many seconds."""
    return Node.heartbeat_at > peewee.SQL("now() - %s * interval '1 second'", [within_s])


def works(lane: Any) -> Any:
    """The condition on nodes whose lane of this name works, as far as they tell."""
    return Node.lanes.is_null() | Node.lanes.has_key(lane)


def reporting_ids(within_s: Any, lane: Any = None) -> Any:
    """The query of the ids of the nodes that have reported in the last so many seconds, and whose
    `lane` works if one is given."""
    reporting = Node.select(Node.id).where(reports(within_s))
    return reporting if lane is None else reporting.where(works(lane))
