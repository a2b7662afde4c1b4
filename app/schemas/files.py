"""Body of a file write and query of a file read."""
from typing import Any

from marshmallow import post_load, validate

from app.schemas.fields import PATH_MAX, Base64, Body, Text, Whole
from services.guest_calls.files import FileItem

MODE_DEFAULT = 0o644
ITEMS_MAX = 1000


class FileItemBody(Body):
    """Contract, file write item; `mode` may be left out (our choice: 0644). Loads to `FileItem`."""

    path = Text(high=PATH_MAX, required=True)
    content = Base64(required=True)
    mode = Whole(validate=validate.Range(0, 0o7777), load_default=MODE_DEFAULT)

    @post_load
    def _item(self, data: dict[str, Any], **_: Any) -> FileItem:
        return FileItem(**data)


class FileQuery(Body):
    """Which file to read."""

    path = Text(high=PATH_MAX, required=True)
