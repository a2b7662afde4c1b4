"""Finds what the id of a template means: `<id>` is the latest version, `<id>-v<version>` one that
never changes.

A version begins with a digit, so that names and versions cannot be mistaken for each other:
whatever has `-v` and a digit in it refers to a version, split at the first such place. `react-vite`
is a name, `react-v2` a version of `react`.
"""
import re
from dataclasses import dataclass
from typing import Any

from models.snapshots import Snapshot
from models.states import SnapshotState
from models.templates import Template
from models.users import User
from services.errors import Conflict, InvalidRequest, NotFound
from services.snapshots.find import lock_shared

NAME_MAX, VERSION_MAX = 64, 32
VERSION = re.compile(r"[0-9][A-Za-z0-9._-]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_REFERENCE = re.compile(r"(.+?)-v([0-9].*)", re.ASCII)


@dataclass(frozen=True)
class Reference:
    """A parsed template id; `version` None means the latest."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}-v{self.version}"


@dataclass(frozen=True)
class ResolvedTemplate:
    """A template found for a new sandbox, and the snapshot that it was published from."""

    template: Template
    snapshot: Snapshot


def parse(template_id: str) -> Reference:
    """Raises InvalidRequest for what can be neither a name nor a version of one."""
    match = _REFERENCE.fullmatch(template_id)
    name, version = match.groups() if match else (template_id, None)
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX:
        raise InvalidRequest(
            f"a template id has 1 to {NAME_MAX} letters, digits, '-', '_' and '.', and begins with"
            " a letter or a digit"
        )
    if version is not None:
        check_version(version)
    return Reference(name, version)


def check_version(version: str) -> None:
    """Raises InvalidRequest for a text that cannot be a version."""
    if not VERSION.fullmatch(version) or len(version) > VERSION_MAX:
        raise InvalidRequest(
            f"a version has 1 to {VERSION_MAX} letters, digits, '-', '_' and '.', and begins with a"
            " digit, such as 2, 1.4.0 or 2026-11-21"
        )


def owned_by(namespace: User | None) -> Any:
    """The condition on rows that picks a user's private names, or with None the system
    catalogue."""
    return Template.owner.is_null() if namespace is None else Template.owner == namespace.id


def find(namespace: User | None, reference: Reference) -> Template | None:
    """The published version that `reference` means in one namespace."""
    which = Template.latest if reference.version is None else Template.version == reference.version
    return Template.get_or_none(
        owned_by(namespace) & (Template.name == reference.name) & which
        & Template.deleted_at.is_null())


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
