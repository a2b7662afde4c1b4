"""Finds an app for its owner: nobody else may change it or see what is set for it."""
from models.database import ROW_LOCK
from models.deploys import Deploy
from models.users import User
from services.errors import Forbidden, NotFound


def get_owned(owner: User, slug: str) -> Deploy:
    """The row of an app of the owner's; raises NotFound, Forbidden."""
    return _checked(owner, slug, Deploy.get_or_none(Deploy.slug == slug))


def lock_owned(owner: User, slug: str) -> Deploy:
    """The same row, locked until the current transaction ends."""
    return _checked(owner, slug, Deploy.select().where(
        Deploy.slug == slug).for_update(ROW_LOCK).get_or_none())


def _checked(owner: User, slug: str, row: Deploy | None) -> Deploy:
    if row is None:
        raise NotFound(f"There is no app {slug}.")
    if row.owner_id != owner.id:
        raise Forbidden("This app belongs to another account.")
    return row
