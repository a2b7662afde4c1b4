"""Brings a database from the object store into a guest, by way of a file on this host, where it is
made and checked."""
from collections.abc import Callable, Iterator
from pathlib import Path

from guest.client.agent_client import AgentClient
from nodeworker.deploys import replica_files, replication
from nodeworker.faults import fault
from nodeworker.wiring import NodeDeps

_PIECE = 1024 * 1024
# What the owner is told if it cannot be made in several attempts.
BROKEN = ("The database of the version before could not be restored from what is stored of it; that"
          " version goes on.")


def copy(deps: NodeDeps, agent: AgentClient, prefix: str, path: str,
         held_for_s: Callable[[], float], txid: str | None = None) -> bool:
    """Put what `prefix` held after `txid`, or as late as there is, at `path` of a guest, where
    there is nothing yet; nothing, if it holds nothing and no `txid` is named. Returns whether there
    is a database.

    To make it may take longer than a claim lasts whose renewals fail, and the database of a guest
    that has gone on would be replaced: `held_for_s` is asked before anything is written, for how
    many seconds that may take, and raises if it is not ours to do any more. Raises what that does,
    AgentError, ReplicaBroken, StoreUnavailable."""
    with replica_files.scratch(deps.settings) as directory:
        file = Path(directory) / "db"
        has_one = replication.restore(deps.settings, prefix, file, txid)
        fault("deploy.restored")
        if has_one:
            timeout_s = held_for_s()
            agent.write_file(path, _pieces(file), size_bytes=file.stat().st_size,
                             timeout_s=timeout_s)
    return has_one


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
