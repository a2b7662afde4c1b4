"""Says who may see an app, and finds it for its owner: nobody else may change it or see what is set
for it."""
from models.database import ROW_LOCK
from models.deploys import Deploy
from models.users import User
from services.errors import Forbidden, NotFound


def get_owned(owner: User, slug: str) -> Deploy:
    """The row of an app of the owner's; raises NotFound, Forbidden."""
    return seen_by(owner, slug, Deploy.get_or_none(Deploy.slug == slug))


def lock_owned(owner: User, slug: str) -> Deploy:
    """The same row, locked until the current transaction ends."""
    return seen_by(owner, slug, Deploy.select().where(
        Deploy.slug == slug).for_update(ROW_LOCK).get_or_none())


def seen_by(owner: User | None, slug: str, row: Deploy | None) -> Deploy:
    """The row found for `slug`, if `owner` may see it, or None, who sees all; raises NotFound,
    Forbidden."""
    if row is None:
        raise NotFound(f"There is no app {slug}.")
    if owner is not None and row.owner_id != owner.id:
        raise Forbidden("This app belongs to another account.")
    return row
