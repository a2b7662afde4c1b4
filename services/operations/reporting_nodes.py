"""Decides which nodes are told of work: those that have reported lately, by a lane that works.

What waits on a silent node, or for a lane that does not work, stays a row. Its due time is past
when that is back, so the next sweep announces it; until then a message would only lie in a queue
that nobody empties.
"""
from datetime import datetime, timedelta
from typing import Any

from models.database import now
from models.nodes import Node


def reported_since(dead_after_s: float) -> datetime:
    """A node whose last heartbeat is from before this moment is silent."""
    return now() - timedelta(seconds=dead_after_s)


def reports(since: Any) -> Any:
    """The condition on nodes that have reported since then."""
    return Node.heartbeat_at > since


def works(lane: Any) -> Any:
    """The condition on nodes whose lane of this name works, as far as they tell."""
    return Node.lanes.is_null() | Node.lanes.has_key(lane)


def reporting_ids(since: Any, lane: Any = None) -> Any:
    """The query of the ids of the nodes that have reported since then, and whose `lane` works if
    one is given."""
    reporting = Node.select(Node.id).where(reports(since))
    return reporting if lane is None else reporting.where(works(lane))
