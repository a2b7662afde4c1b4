"""Decides which nodes are told of work: those that have reported lately.

What waits on a silent node stays a row. Its due time is past when the node reports again, so the
next sweep announces it; until then a message would only lie in a queue that nobody empties.
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


def reporting_ids(since: Any) -> Any:
    """The query of the ids of the nodes that have reported since then."""
    return Node.select(Node.id).where(reports(since))
