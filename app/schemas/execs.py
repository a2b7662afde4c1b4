"""Body of exec."""
import json
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from app.schemas.fields import COMMAND_MAX, PATH_MAX, Body, Environment, Flag, Text, Whole
from services.protocols import ExecRequest

TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS = 60_000, 3_600_000
ARGS_MAX = 4096
# A request to the agent is one frame of at most 1 MiB; the sandbox's own variables and our fields
# need the rest.
_FRAME_SHARE_BYTES = 512 * 1024


class ExecBody(Body):
    """Contract, exec. `cmd` alone is a line for the shell; with `args` it is a program (our
    choice)."""

    cmd = Text(high=COMMAND_MAX, required=True)
    args = fields.List(Text(low=0, high=COMMAND_MAX), validate=validate.Length(max=ARGS_MAX),
                       load_default=None)
    cwd = Text(high=PATH_MAX, load_default=None)
    env = Environment(load_default=dict)
    timeout_ms = Whole(data_key="timeoutMs", validate=validate.Range(1, TIMEOUT_MAX_MS),
                       load_default=TIMEOUT_DEFAULT_MS)
    detached = Flag(load_default=False)

    @validates_schema
    def _fits_a_frame(self, data: dict[str, Any], **_: Any) -> None:
        if len(json.dumps([data["cmd"], data["args"], data["env"]])) > _FRAME_SHARE_BYTES:
            raise ValidationError(
                "cmd, args and env are too large together; write a file and run that")

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> ExecRequest:
        cmd, args = data.pop("cmd"), data.pop("args")
        if args is None:
            return ExecRequest(argv=None, shell=cmd, **data)
        return ExecRequest(argv=(cmd, *args), shell=None, **data)
