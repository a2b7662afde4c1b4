"""What an operator does with versions of templates: sees which of them anybody uses, and removes
those that nobody does.

A user takes back a name only; its versions, and the snapshots below them, stay.
"""
from dataclasses import dataclass
from datetime import datetime

import peewee

from models.database import ROW_LOCK, connection, database, now
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from models.templates import Template
from models.users import User
from services.errors import Conflict, InvalidRequest, NotFound
from services.templates.lookup import find, owned_by
from services.templates.names import parse


@dataclass(frozen=True)
class VersionUse:
    """A version that stands: whether its name means it, and how many sandboxes, stopped ones
    aside, were made of its snapshot."""

    id: str
    snapshot_id: str
    latest: bool
    sandboxes: int
    created_at: datetime

    @property
    def is_used(self) -> bool:
        """True while anybody may miss it."""
        return self.latest or self.sandboxes > 0


def list_versions(namespace: User | None) -> list[VersionUse]:
    """Every version that stands in a namespace (None: the system catalogue), by name, oldest
    first."""
    with connection():
        standing = owned_by(namespace) & Template.deleted_at.is_null()
        rows = Template.select().where(standing).order_by(Template.name, Template.created_at)
        return _uses(list(rows))


def remove_unused(namespace: User | None, template_id: str) -> VersionUse:
    """Remove one version that nobody uses; its snapshot may then be deleted. Raises InvalidRequest
    for what is no version, NotFound, and Conflict for one that is used."""
    reference = parse(template_id)
    if reference.version is None:
        raise InvalidRequest(f"{template_id} is a name; a version is {template_id}-v<version>.")
    with connection(), database.atomic():
        row = find(namespace, reference)
        if row is None:
            raise NotFound(f"There is no template {reference}.")
        Template.select().where(Template.id == row.id).for_update(ROW_LOCK).get()
        use, = _uses([Template.get_by_id(row.id)])
        if use.latest:
            raise Conflict(f"{reference} is what the name {reference.name} means.")
        if use.sandboxes:
            raise Conflict(f"{use.sandboxes} sandboxes were made of {reference}.")
        Template.update(deleted_at=now()).where(Template.id == row.id).execute()
    return use


def _uses(rows: list[Template]) -> list[VersionUse]:
    made = Sandbox.select(Sandbox.snapshot_id, peewee.fn.COUNT(Sandbox.id)).where(
        Sandbox.snapshot_id.in_([row.snapshot_id for row in rows])
        & (Sandbox.status != SandboxStatus.STOPPED)).group_by(Sandbox.snapshot_id)
    counts = dict(made.tuples())
    return [VersionUse(f"{row.name}-v{row.version}", row.snapshot_id, row.latest,
                       counts.get(row.snapshot_id, 0), row.created_at) for row in rows]
