"""Body of growing a disk."""
from app.schemas.fields import Body


class GrowBody(Body):
    """Growing takes no fields, as the floor is the platform's; an empty object is welcome."""
