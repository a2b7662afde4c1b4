"""What a create or a fork may ask for: the validated bodies as records."""
from dataclasses import dataclass, field
from typing import Any

from models.states import SandboxKind


@dataclass(frozen=True)
class LaunchOptions:
    """What a create or fork may say about the new sandbox; None means not said."""

    ports: tuple[int, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    timeout: int | None = None
    start_command: str | None = None
    readiness_port: int | None = None
    skip_app_processes: bool | None = None
    preferred_model: str | None = None
    git_repository_url: str | None = None
    git_ref: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    project_slug: str | None = None
    app_id: str | None = None
    agent_server_source: str | None = None
    agent_bootstrap: dict[str, Any] | None = None

    def is_raw(self, kind: SandboxKind) -> bool:
        """True if the sandbox has no agent server. Contract, Create body: API-key callers get a raw
        sandbox unless they say what its agent server is."""
        if self.skip_app_processes is not None:
            return self.skip_app_processes
        return kind is SandboxKind.API and self.agent_server_source is None


@dataclass(frozen=True)
class CreateRequest:
    """A validated create body."""

    options: LaunchOptions
    size: str | None = None
    vcpus: int | None = None
    mem_mb: int | None = None
    template_id: str | None = None
    template: str | None = None
    idempotency_key: str | None = None
