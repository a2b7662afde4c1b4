"""Bodies of snapshot and of both forks, and what is shown of a snapshot."""
from dataclasses import dataclass
from typing import Any

from marshmallow import post_load

from app.schemas import answers
from app.schemas.answers import Answer
from app.schemas.fields import Body, Ports, Text, Word
from app.schemas.launch_fields import (
    IdempotencyKey,
    PreferredModel,
    ReadinessPort,
    SkipAppProcesses,
    SnapshotId,
    StartCommand,
)
from models.states import SnapshotKind
from services.sandboxes.requests import CaptureRequest, LaunchOptions

RESTORE_KINDS = {"full_rootfs": SnapshotKind.FULL, "project_only": SnapshotKind.FILES_ONLY}


class ArchiveBody(Body):
    """Optional body of filesystem-snapshot and tarball; the key is our choice. Loads to
    `CaptureRequest`."""

    idempotency_key = IdempotencyKey()

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> CaptureRequest:
        return CaptureRequest(SnapshotKind.FILES_ONLY, data["idempotency_key"])


class SnapshotBody(ArchiveBody):
    """Optional body of snapshot. Loads to `CaptureRequest`."""

    restore_kind = Word("What to capture: everything, or the project directory.", RESTORE_KINDS,
                        load_default="full_rootfs")

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> CaptureRequest:
        return CaptureRequest(RESTORE_KINDS[data["restore_kind"]], data["idempotency_key"])


class ForkBody(Body):
    """Optional body of a fork of a sandbox. Loads to `LaunchOptions`."""

    ports = Ports()
    session_id = Text("The session that this belongs to, as text of yours.", high=256)
    project_id = Text("The project that this belongs to, as text of yours.", high=256)
    project_slug = Text("Name of the project, as text of yours.", high=256)
    app_id = Text("The app that this belongs to, as text of yours.", high=256)
    preferred_model = PreferredModel()
    skip_app_processes = SkipAppProcesses()
    readiness_port = ReadinessPort()
    start_command = StartCommand()

    @post_load
    def _options(self, data: dict[str, Any], **_: Any) -> Any:
        return LaunchOptions(**data)


@dataclass(frozen=True)
class SnapshotFork:
    """A validated body of a fork of a snapshot."""

    snapshot_id: str
    idempotency_key: str | None
    options: LaunchOptions


class SnapshotForkBody(ForkBody):
    """Body of a fork of a snapshot. Loads to `SnapshotFork`."""

    snapshot_id = SnapshotId()
    idempotency_key = IdempotencyKey()

    @post_load
    def _options(self, data: dict[str, Any], **_: Any) -> SnapshotFork:
        return SnapshotFork(data.pop("snapshot_id"), data.pop("idempotency_key"),
                            LaunchOptions(**data))


class SnapshotAnswer(Answer):
    """A snapshot of a sandbox."""

    id = answers.Text()
    node_id = answers.Text()
    kind = answers.one_of(SnapshotKind)
    rootfs_sha = answers.Text()
    size_bytes = answers.Count()
    tarball_size_bytes = answers.Count()
    source_sandbox_id = answers.Text()
    uploaded_to_store = answers.Flag("The upload to durable storage has finished.")
    created_at = answers.Time()


class SnapshotListAnswer(Answer):
    """A page of the owner's snapshots, newest first."""

    snapshots = answers.Inner(SnapshotAnswer, many=True, read="items")
    total = answers.Count()
    limit = answers.Count()
    offset = answers.Count()
