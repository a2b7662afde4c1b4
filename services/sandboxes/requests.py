"""What a create or a fork may ask for: the validated bodies as records."""
from dataclasses import dataclass, field, replace
from typing import Any

from models.states import SnapshotKind
from services.templates.presets import PresetOfSandbox


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

    def for_preset(self, chosen: PresetOfSandbox | None) -> "LaunchOptions":
        """These options with what a preset decides: its sandboxes are raw, whatever was asked for,
        and its web UI is their service unless another was."""
        if chosen is None:
            return self
        raw, service = replace(self, skip_app_processes=True), chosen.preset.service
        if service is None or not chosen.serves or self.start_command is not None:
            return raw
        if self.readiness_port not in (None, service.port):
            return raw
        return replace(raw, ports=self.ports or (service.port,),
                       start_command=service.start_command, readiness_port=service.port)


@dataclass(frozen=True)
class CaptureRequest:
    """A validated body of a snapshot: what of the sandbox is captured."""

    kind: SnapshotKind = SnapshotKind.FULL
    idempotency_key: str | None = None


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
