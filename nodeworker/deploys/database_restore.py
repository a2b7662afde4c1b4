"""Brings a database from the object store into a guest, by way of a file on this host, where it is
made and checked."""
from collections.abc import Callable, Iterator
from pathlib import Path

from guest.client.agent_client import AgentClient
from models.database import when_database_answers
from nodeworker.deploys import replica_files, replication
from nodeworker.faults import fault
from nodeworker.wiring import NodeDeps
from services.deploys import runs
from services.deploys.runs import RunClaim

_PIECE, _WRITE_S = 1024 * 1024, 120.0
# What the owner is told if it cannot be made in several attempts.
BROKEN = ("The database of the version before could not be restored from what is stored of it; that"
          " version goes on.")


def copy(deps: NodeDeps, claimed: RunClaim, agent: AgentClient, prefix: str, path: str,
         txid: str | None = None, *, left_s: Callable[[], float] = lambda: _WRITE_S) -> bool:
    """Put what `prefix` held after `txid`, or as late as there is, at `path` of a guest, where
    there is nothing yet; nothing, if it holds nothing and no `txid` is named. Returns whether there
    is a database.

    To make it may take longer than a claim lasts whose renewals fail, and the database of a guest
    that has gone on would be replaced: so it is looked once more whether the run is ours, before
    anything is written, within the `left_s` of then. Raises LeaseLost, what `left_s` does,
    AgentError, ReplicaBroken, StoreUnavailable."""
    with replica_files.scratch(deps.settings) as directory:
        file = Path(directory) / "db"
        has_one = replication.restore(deps.settings, prefix, file, txid)
        fault("deploy.restored")
        if has_one:
            when_database_answers(lambda: runs.renew(claimed, deps.settings.operation_lease_s))
            agent.write_file(path, _pieces(file), size_bytes=file.stat().st_size,
                             timeout_s=left_s())
    return has_one


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
