"""The JSON schema of each event's body, from the specification alone."""
from marshmallow import RAISE, Schema, fields, validate


class Strict(Schema):
    class Meta:
        unknown = RAISE


def text(**options):
    return fields.String(required=True, **options)


SANDBOX = {"sandboxId": text(), "nodeId": text()}
SNAPSHOT = {
    "snapshotId": text(), "sourceSandboxId": text(), "nodeId": text(),
    "kind": text(validate=validate.OneOf(["user_project", "files_only"])), "rootfsSha": text(),
    "sizeBytes": fields.Integer(required=True, strict=True),
    "tarballSizeBytes": fields.Integer(required=True, strict=True),
}
DEPLOY = {"deployIntentId": text(allow_none=True), "slug": text(), "runId": text()}
DATA = {
    "sandbox.started": SANDBOX | {
        "boot": text(validate=validate.OneOf(["cold", "fork"])),
        "sourceSandboxId": text(allow_none=True),
        "snapshotId": text(allow_none=True),
    },
    "sandbox.stopped": SANDBOX | {
        "reason": text(validate=validate.OneOf(["deleted", "boot_failed", "source_not_captured"])),
        "error": text(allow_none=True),
    },
    "sandbox.snapshot.recorded": SNAPSHOT,
    "sandbox.snapshot.uploaded": SNAPSHOT,
    "deploy.succeeded": DEPLOY,
    "deploy.failed": DEPLOY | {"error": text()},
}
BODY = Strict.from_dict({
    "id": text(validate=validate.Regexp(r"evt_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")),
    "type": text(validate=validate.OneOf(DATA)),
    "ownerId": text(),
    "occurredAt": text(validate=validate.Regexp(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")),
    "data": fields.Dict(required=True),
})
