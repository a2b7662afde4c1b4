"""Bodies of snapshot and of both forks."""
from dataclasses import dataclass
from typing import Any

from marshmallow import fields, post_load, validate

from app.schemas.fields import COMMAND_MAX, IDEMPOTENCY_KEY_MAX, Body, Flag, Port, Ports, Text
from models.states import SnapshotKind
from services.sandboxes.create import LaunchOptions

RESTORE_KINDS = {"full_rootfs": SnapshotKind.FULL, "project_only": SnapshotKind.FILES_ONLY}


class ArchiveBody(Body):
    """Optional body of filesystem-snapshot and tarball; the key is our choice."""

    idempotency_key = Text(data_key="idempotencyKey", low=0, high=IDEMPOTENCY_KEY_MAX,
                           load_default=None)


class SnapshotBody(ArchiveBody):
    """Optional body of snapshot; `restoreKind` loads to the `kind` of the snapshot."""

    restore_kind = fields.String(
        data_key="restoreKind", validate=validate.OneOf(list(RESTORE_KINDS)),
        load_default="full_rootfs",
    )

    @post_load
    def _kind(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"kind": RESTORE_KINDS[data.pop("restore_kind")], **data}


class ForkBody(Body):
    """Optional body of a fork of a sandbox. Loads to `LaunchOptions`."""

    ports = Ports(load_default=())
    session_id = Text(data_key="sessionId", high=256)
    project_id = Text(data_key="projectId", high=256)
    project_slug = Text(data_key="projectSlug", high=256)
    app_id = Text(data_key="appId", high=256)
    preferred_model = Text(data_key="preferredModel", low=0, high=128)
    skip_app_processes = Flag(data_key="skipAppProcesses")
    readiness_port = Port(data_key="readinessPort")
    start_command = Text(data_key="startCommand", high=COMMAND_MAX)

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

    snapshot_id = Text(data_key="snapshotId", high=64, required=True)
    idempotency_key = Text(data_key="idempotencyKey", low=0, high=IDEMPOTENCY_KEY_MAX,
                           load_default=None)

    @post_load
    def _options(self, data: dict[str, Any], **_: Any) -> SnapshotFork:
        return SnapshotFork(data.pop("snapshot_id"), data.pop("idempotency_key"),
                            LaunchOptions(**data))
