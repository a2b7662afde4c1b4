"""Says whether a sweep would find anything. Beat asks before it sends a tick: most would find
nothing, and each costs the broker, a worker and Flower some milliseconds.

1. What is asked for is what the sweep looks for, or more, each by the query of its own rule; all of
a sweep in one statement. 2. A sweep that is not named here is sent at every tick. So is every one
while the database is away: then nobody can say.
"""
from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Any

import peewee

from config.settings import get_settings
from models.database import DatabaseFailed, connection, database, now
from models.row import Row, Statement
from services.deploys import earlier_versions, runs, version_prefixes
from services.deploys.served import fences, replica_keys, stop_old_runtimes
from services.events import deliveries
from services.hosts import warm_images
from services.metering import counting
from services.operations import sweeps
from services.sandboxes import idle, outcomes
from services.snapshots import deletion, disk_upload
from tasks import contracts

# Each takes a moment and returns the query of what is due at it; those that look at the nodes that
# report also take the seconds within which a node must have reported.
_OF_REPORTING_NODES = (
    idle.due_query, sweeps.due_query,
    *(work.due_query for work in (disk_upload.UPLOADS, warm_images.BAKES, deletion.DELETIONS,
                                  runs.RUNS)))
_QUERIES: dict[str, tuple[Callable[..., Any], ...]] = {
    contracts.IDLE_SWEEP: (idle.due_query,),
    contracts.OPERATIONS_SWEEP: (
        sweeps.due_query, disk_upload.UPLOADS.due_query, warm_images.BAKES.due_query,
        deletion.DELETIONS.due_query, outcomes.overdue_query),
    contracts.DEPLOYS_SWEEP: (
        runs.unheld_query, runs.RUNS.due_query, fences.due_query, stop_old_runtimes.due_query,
        replica_keys.due_query, earlier_versions.due_query, version_prefixes.due_query),
    contracts.SAMPLE_ALL: (counting.metered_query,),
    contracts.WEBHOOKS_SWEEP: (
        deliveries.unrouted_query, deliveries.pending_query, deliveries.sending_query),
}


def is_due(job: str) -> bool:
    """Whether the sweep of this job would find anything. The process must know its database."""
    if job not in _QUERIES:
        return True
    try:
        with connection():
            return _statement(job).find(now(), get_settings().node_dead_after_s) is not None
    except DatabaseFailed:
        return True


@cache
def _statement(job: str) -> Statement:
    """One row if any query of the job finds something, else none."""
    def build(moment: Any, within_s: Any) -> Any:
        asked = [query(moment, within_s) if query in _OF_REPORTING_NODES else query(moment)
                 for query in _QUERIES[job]]
        anything = reduce(or_, map(peewee.fn.EXISTS, asked))
        return peewee.Select(columns=[peewee.SQL("1")]).bind(database).where(anything)

    return Statement(Row, build, values=2)
