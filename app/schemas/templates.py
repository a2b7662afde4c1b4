"""Body of a template's publication, and what is shown of a template."""
from typing import Any

from marshmallow import post_load

from app.schemas import answers
from app.schemas.answers import Answer
from app.schemas.fields import Body, Ports, Text
from app.schemas.launch_fields import ReadinessPort, SnapshotId, StartCommand
from services.templates.names import VERSION_MAX
from services.templates.registry import Release


class TemplateBody(Body):
    """Contract, Templates registry; `version` is ours. Loads to `Release`."""

    snapshot_id = SnapshotId()
    start_command = StartCommand()
    readiness_port = ReadinessPort()
    ports = Ports()
    version = Text(
        "A version of your own, beginning with a digit; the next whole number unless given.",
        high=VERSION_MAX)

    @post_load
    def _release(self, data: dict[str, Any], **_: Any) -> Release:
        return Release(**data)


class TemplateAnswer(Answer):
    """A version of a template in the registry."""

    id = answers.Text("Its name; `<id>-v<version>` is this version for good.", read="name")
    version = answers.Text()
    scope = answers.Text(
        openapi={"type": "string", "enum": ["private", "system"]},
        read=lambda record: "system" if record.owner_id is None else "private")
    snapshot_id = answers.Text()
    start_command = answers.Text(null=True)
    readiness_port = answers.Shown(openapi=answers.PORT, null=True)
    ports = answers.Shown(openapi={"type": "array", "items": answers.PORT})
    created_at = answers.Time()
    updated_at = answers.Time()
