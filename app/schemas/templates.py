"""Body of a template's publication."""
from typing import Any

from marshmallow import post_load

from app.schemas.fields import COMMAND_MAX, Body, Port, Ports, Text
from services.templates.lookup import VERSION_MAX
from services.templates.registry import Release


class TemplateBody(Body):
    """Contract, Templates registry; `version` is ours. Loads to `Release`."""

    snapshot_id = Text(data_key="snapshotId", high=64, required=True)
    start_command = Text(data_key="startCommand", high=COMMAND_MAX)
    readiness_port = Port(data_key="readinessPort")
    ports = Ports(load_default=())
    version = Text(high=VERSION_MAX)

    @post_load
    def _release(self, data: dict[str, Any], **_: Any) -> Release:
        return Release(**data)
