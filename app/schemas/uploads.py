"""Where an upload goes: the part of the address after `uploads/`."""
from typing import Any

from marshmallow import ValidationError

from app.schemas.fields import PATH_MAX, Body, Text


class FilePath(Text):
    """A path of a file, relative or absolute, without `.` and `..`, which would mean something else
    than they say."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        path = super()._deserialize(value, attr, data, **options)
        steps = path.split("/")
        if not steps[-1]:
            raise ValidationError("must name a file")
        if {".", ".."} & set(steps):
            raise ValidationError("must not have . or .. as a step")
        return path


class UploadTarget(Body):
    """The target of an upload."""

    path = FilePath(low=0, high=PATH_MAX, required=True)
