"""Finds the version of a template that its id means to a caller, and the snapshot behind it."""
from dataclasses import dataclass
from typing import Any

import peewee

from models.snapshots import Snapshot
from models.states import SnapshotState
from models.templates import Template
from models.users import User
from services.errors import Conflict, NotFound
from services.snapshots.find import lock_shared
from services.templates.names import Reference, parse


@dataclass(frozen=True)
class ResolvedTemplate:
    """A template found for a new sandbox, and the snapshot that it was published from."""

    template: Template
    snapshot: Snapshot


def owned_by(namespace: User | None) -> Any:
    """The condition on rows that picks a user's private names, or with None the system
    catalogue; as the index has it."""
    return peewee.fn.COALESCE(Template.owner, "") == ("" if namespace is None else namespace.id)


def named(namespace: User | None, name: str) -> Any:
    """The condition on rows that picks all versions of a name in one namespace."""
    return owned_by(namespace) & (Template.name == name)


def find(namespace: User | None, reference: Reference) -> Template | None:
    """The published version that `reference` means in one namespace."""
    which = Template.latest if reference.version is None else Template.version == reference.version
    return Template.get_or_none(
        named(namespace, reference.name) & which & Template.deleted_at.is_null())


def resolve(owner: User, template_id: str) -> ResolvedTemplate:
    """What `templateId` means to `owner`: a private name if there is one, else the system's
    (contract, Templates 2).

    The snapshot is kept from being removed until the current transaction ends. Raises
    InvalidRequest, NotFound, and Conflict when the snapshot of the template is not usable any more.
    """
    reference = parse(template_id)
    template = find(owner, reference) or find(None, reference)
    if template is None:
        raise NotFound(f"There is no template {reference}.")
    snapshot = lock_shared(template.snapshot_id)
    if snapshot is None or snapshot.state != SnapshotState.READY:
        raise Conflict(
            f"The snapshot of the template {reference} is gone; publish the template again.")
    return ResolvedTemplate(template, snapshot)
