"""Body and answer of exec."""
import codecs
import json
from functools import partial
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from app.schemas import answers
from app.schemas.answers import Answer, LongText
from app.schemas.fields import PATH_MAX, Body, Command, Environment, Flag, Text, Whole
from guest.agent.protocol import MAX_PAYLOAD_BYTES
from services.protocols import ExecRequest

TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS = 60_000, 3_600_000
ARGS_MAX = 4096
# A request to the agent is one frame of at most 1 MiB; the sandbox's own variables and our fields
# need the rest.
_FRAME_SHARE_BYTES = MAX_PAYLOAD_BYTES // 2
_PIECE_BYTES = 64 * 1024


class ExecBody(Body):
    """Contract, exec. `cmd` alone is a line for the shell; with `args` it is a program (our
    choice)."""

    cmd = Command("A line for the guest's shell or, with `args`, a program. Runs as root.",
                  required=True)
    args = fields.List(
        Command(low=0), validate=validate.Length(max=ARGS_MAX), load_default=None,
        metadata={
            "description": "Arguments of `cmd`, untouched by any shell; with them, even an empty"
                           " list, `cmd` is a program."
        })
    cwd = Text("Where the command starts; the sandbox's `cwd` unless given.", high=PATH_MAX,
               load_default=None)
    env = Environment()
    timeout_ms = Whole("When to kill the command, in milliseconds; `exitCode` is then 124.",
                       low=1, high=TIMEOUT_MAX_MS, load_default=TIMEOUT_DEFAULT_MS)
    detached = Flag("Answer at once with `pid` and `logPath`; the command outlives the call.",
                    load_default=False)

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


def _decoded(output: bytes) -> LongText | str:
    """Bytes that are not UTF-8 become U+FFFD."""
    if len(output) <= _PIECE_BYTES:
        return output.decode("utf-8", "replace")
    pieces = (output[start:start + _PIECE_BYTES] for start in range(0, len(output), _PIECE_BYTES))
    return LongText(codecs.iterdecode(pieces, "utf-8", "replace"))


_Output = partial(answers.Text, show=_decoded)
# Left out unless it is set.
_SetFlag = partial(answers.Shown, openapi={"const": True}, optional=True)


class ExecResultAnswer(Answer):
    """What a command printed and how it ended."""

    stdout = _Output()
    stderr = _Output()
    exit_code = answers.Shown(openapi={"type": "integer"})
    timed_out = _SetFlag("The deadline ended the command; `exitCode` is 124.")
    stdout_truncated = _SetFlag("There was more output than is kept.")
    stderr_truncated = _SetFlag("There was more output than is kept.")
    pid = answers.Count("Of a detached command.", optional=True,
                        read=lambda outcome: outcome.pid if outcome.log_path else None)
    log_path = answers.Text("Where a detached command's output goes, in the guest.", optional=True)
