"""Body of a file write, query and answer of a file read, answer of an upload."""
import base64
from collections.abc import Iterable, Iterator
from typing import Any

from marshmallow import ValidationError, post_load

from app.schemas import answers
from app.schemas.answers import Answer, LongText, whole
from app.schemas.fields import PATH_MAX, Base64, Body, Text, Whole
from services.guest_calls.files import FileItem

MODE_DEFAULT = 0o644
ITEMS_MAX = 1000


class _Target(Text):
    """Where a file goes; not a directory, nor what might be one."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        path = super()._deserialize(value, attr, data, **options)
        if path.split("/")[-1] in ("", ".", ".."):
            raise ValidationError("must name a file")
        return path


class FileItemBody(Body):
    """Contract, file write item; `mode` may be left out (our choice: 0644). Loads to `FileItem`."""

    path = _Target("Path of the file in the guest.", high=PATH_MAX, required=True)
    content = Base64("Content of the file in base64.", required=True)
    mode = Whole("Permissions of the file as a number; 420 is 0644.",
                 low=0, high=0o7777, load_default=MODE_DEFAULT)

    @post_load
    def _item(self, data: dict[str, Any], **_: Any) -> FileItem:
        return FileItem(**data)


class FileQuery(Body):
    """Which file to read."""

    path = Text("Path of the file in the guest.", high=PATH_MAX, required=True)


def _base64(pieces: Iterable[bytes]) -> Iterator[str]:
    """Base64 of all the pieces together."""
    left = b""
    for piece in pieces:
        left += piece
        fits = len(left) - len(left) % 3
        yield base64.b64encode(left[:fits]).decode()
        left = left[fits:]
    yield base64.b64encode(left).decode()


class FileContentAnswer(Answer):
    """A file."""

    content = answers.Text(openapi={"type": "string", "contentEncoding": "base64"}, read=whole,
                           show=lambda pieces: LongText(_base64(pieces)))


class UploadedAnswer(Answer):
    """A file that was uploaded."""

    path = answers.Text("Its absolute path in the guest.")
    size_bytes = answers.Count()
