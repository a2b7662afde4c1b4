"""The sandbox that is to serve the app of a run, as its node sees it."""
import contextlib
import socket

from nodeworker.wiring import NodeDeps
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.runs import RunClaim
from services.hosts import assignments
from services.hosts.assignments import SandboxOnNode

_CONNECT_S = 1.0


def find(deps: NodeDeps, claimed: RunClaim) -> SandboxOnNode:
    """The runtime of the run as its row is now."""
    assert claimed.runtime_sandbox_id is not None
    return assignments.get_assigned(deps.settings, claimed.runtime_sandbox_id)


def database_path(claimed: RunClaim, sandbox: SandboxOnNode) -> str | None:
    """Where the app has its database; None if it has none."""
    assert claimed.manifest is not None
    database = claimed.manifest["database"]
    return f"{sandbox.cwd}/{database}" if database else None


def accepts(deps: NodeDeps, sandbox: SandboxOnNode) -> bool:
    """Whether the app accepts a connection that comes as those of the edge do."""
    port = next(host for host, guest in sandbox.forwards.items() if guest == APP_PORT)
    with contextlib.suppress(OSError):
        with socket.create_connection((deps.settings.node_address, port), timeout=_CONNECT_S):
            return True
    return False
