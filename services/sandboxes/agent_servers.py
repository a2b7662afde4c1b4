"""Decides whether a new sandbox has an agent server, keeps what that needs, and decides what of it
a fork gets and how long its callback token is kept.

A raw sandbox has none. A fork runs the same server, but reports to nobody: the session of its
source is not its own.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.row import Statement
from models.sandboxes import AgentServer
from models.snapshots import Snapshot
from models.states import SandboxKind
from services.sandboxes.requests import LaunchOptions

_KEPT = Statement(
    AgentServer,
    lambda sandbox_id: AgentServer.select().where(AgentServer.sandbox_id == sandbox_id),
)


@dataclass(frozen=True)
class AgentServerSpec:
    """What starts the agent server of a sandbox; `bootstrap` holds its callback token."""

    source: str | None
    bootstrap: Mapping[str, Any] | None = field(repr=False)


def is_raw(options: LaunchOptions, kind: SandboxKind) -> bool:
    """True if a new sandbox has no agent server. Contract, Create body: API-key callers get a raw
    sandbox unless they say what its agent server is."""
    if options.skip_app_processes is not None:
        return options.skip_app_processes
    return kind is SandboxKind.API and options.agent_server_source is None


def keep(sandbox_id: str, source: str | None, bootstrap: dict[str, Any] | None) -> None:
    """Keep what a new sandbox's agent server needs, in the transaction that makes it; nothing given
    is nothing kept."""
    if source is not None or bootstrap is not None:
        AgentServer.create(sandbox_id=sandbox_id, source=source, bootstrap=bootstrap)


def find(sandbox_id: str) -> AgentServerSpec | None:
    """What is kept for a sandbox, if it has an agent server."""
    row = _KEPT.find(sandbox_id)
    return None if row is None else AgentServerSpec(row.source, row.bootstrap)


def ran_at_capture(snapshot_id: str) -> bool:
    """True if the source of a snapshot has an agent server, so that a copy of its memory has one
    running too."""
    source = Snapshot.select(Snapshot.source_sandbox_id).where(Snapshot.id == snapshot_id)
    return bool(AgentServer.select().where(AgentServer.sandbox_id == source).exists())


def find_source(sandbox_id: str) -> str | None:
    """What a fork of this sandbox starts, unless it is to be raw."""
    kept = find(sandbox_id)
    return None if kept is None else kept.source


def forget(sandbox_id: str) -> None:
    """Remove all that is kept for a sandbox, in the current transaction."""
    AgentServer.delete().where(AgentServer.sandbox_id == sandbox_id).execute()


def forget_bootstrap(sandbox_id: str) -> None:
    """Remove the callback address and token of a sandbox that has stopped, in the current
    transaction."""
    AgentServer.update(bootstrap=None).where(AgentServer.sandbox_id == sandbox_id).execute()
