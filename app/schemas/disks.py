"""Body of growing a disk, and what is shown of one."""
from app.schemas import answers
from app.schemas.answers import Answer
from app.schemas.fields import Body


class GrowBody(Body):
    """Growing takes no fields, as the floor is the platform's; an empty object is welcome."""


class DiskAnswer(Answer):
    """The root file system of a running sandbox, as its guest tells it."""

    total_bytes = answers.Count()
    used_bytes = answers.Count()
    available_bytes = answers.Count()
