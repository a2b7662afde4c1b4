"""Publishes a snapshot as a template, looks a template up, takes it back (contract, Templates
registry).

A namespace is a user's, or None: the system catalogue, which a service changes that acts for
nobody.
"""
from dataclasses import dataclass

from models import locks
from models.database import connection, database, now
from models.locks import LockClass
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.templates import Template
from models.users import User
from services.errors import Conflict, Forbidden, InvalidRequest, NotFound
from services.snapshots.find import get_owned, lock_shared
from services.templates.lookup import find, named, owned_by
from services.templates.names import Reference, check_version, parse
from services.templates.start_command import check_launch
from services.templates.version_numbers import next_version

# Of one account: a user's versions stand until an operator removes them.
VERSIONS_MOST = 1000


@dataclass(frozen=True)
class Release:
    """A validated body of publish; without `version` it becomes the next whole number."""

    snapshot_id: str
    start_command: str | None = None
    readiness_port: int | None = None
    ports: tuple[int, ...] = ()
    version: str | None = None

    def contents(self) -> dict[str, object]:
        """The columns that make a version what it is."""
        return {"snapshot_id": self.snapshot_id, "start_command": self.start_command,
                "readiness_port": self.readiness_port, "ports": list(self.ports)}

    def is_in(self, row: Template) -> bool:
        """True if `row` already is what this release would make it."""
        return all(getattr(row, name) == value for name, value in self.contents().items())


@dataclass(frozen=True)
class Publication:
    """A published version; `made` is False if it was there already."""

    template: Template
    made: bool


def publish(namespace: User | None, template_id: str, release: Release) -> Publication:
    """Make `release` a version of the template and the latest one.

    The same content again makes nothing new. Raises InvalidRequest, Forbidden, NotFound, and
    Conflict for a version that has another content, a snapshot that is not ready, or one version
    too many.
    """
    reference = parse(template_id)
    check_launch(release.start_command, release.readiness_port, release.ports)
    version = _check_version(namespace, reference, release.version)
    with connection(), database.atomic():
        _lock(namespace, reference.name)
        _check_snapshot(namespace, release.snapshot_id)
        latest = find(namespace, Reference(reference.name))
        if version is None and latest is not None and release.is_in(latest):
            return Publication(latest, False)
        version = version or next_version(namespace, reference.name)
        known = Template.get_or_none(
            named(namespace, reference.name) & (Template.version == version))
        if known is None or known.deleted_at is not None:
            _check_room(namespace)
        if known is None:
            made = Template.create(owner=namespace, name=reference.name, version=version,
                                   **release.contents())
            return Publication(_make_latest(namespace, made), True)
        if reference.version is None and not release.is_in(known):
            raise Conflict(
                f"Version {version} of {reference.name} has another content; publish a new version."
            )
        Template.update(deleted_at=None,
                        **release.contents()).where(Template.id == known.id).execute()
        return Publication(_make_latest(namespace, known), False)


def get(namespace: User | None, template_id: str) -> Template:
    """The version that an id means in the caller's own namespace; raises InvalidRequest,
    NotFound."""
    reference = parse(template_id)
    with connection():
        template = find(namespace, reference)
    if template is None:
        raise NotFound(f"There is no template {reference}.")
    return template


def delete(namespace: User | None, template_id: str) -> Template:
    """Take a name back; returns what its latest version was. Sandboxes made from it go on, since
    they have copies.

    A user's versions stay addressable, and keep their snapshots; only a service removes versions
    (contract, Templates 3): by the name of the catalogue all of them, by a version reference that
    one, and the one published before it becomes the latest. Raises InvalidRequest, Forbidden,
    NotFound.
    """
    reference = parse(template_id)
    _check_version(namespace, reference, None)
    with connection(), database.atomic():
        _lock(namespace, reference.name)
        template = get(namespace, template_id)
        if namespace is not None:
            Template.update(latest=False).where(Template.id == template.id).execute()
            return template
        gone = named(namespace, reference.name) & Template.deleted_at.is_null()
        if reference.version is not None:
            gone &= Template.version == reference.version
        Template.update(deleted_at=now(), latest=False).where(gone).execute()
        left = _newest(namespace, reference.name)
        if template.latest and left is not None:
            Template.update(latest=True).where(Template.id == left.id).execute()
    return template


def _check_version(namespace: User | None, reference: Reference, version: str | None) -> str | None:
    """The version asked for, by the body or by the reference; raises InvalidRequest, Forbidden."""
    if version is not None:
        check_version(version)
    if reference.version is None:
        return version
    if namespace is not None:
        raise Forbidden(
            f"{reference} is a version of a template and never changes; publish a new version as "
            f"{reference.name}.")
    if version not in (None, reference.version):
        raise InvalidRequest(f"version must be {reference.version} or left out")
    return reference.version


def _check_room(namespace: User | None) -> None:
    """Raises Conflict if the user has so many versions that one more is too many. Several names
    that are published at the same moment may each pass it by one."""
    standing = owned_by(namespace) & Template.deleted_at.is_null()
    if namespace is not None and Template.select().where(standing).count() >= VERSIONS_MOST:
        raise Conflict(
            f"The account has {VERSIONS_MOST} versions of templates, which is the most; the"
            " operator can remove those that nobody uses.")


def _check_snapshot(namespace: User | None, snapshot_id: str) -> None:
    """The snapshot must be the user's and of a sandbox of theirs (a system template's: anybody's),
    and ready."""
    if namespace is not None:
        get_owned(namespace, snapshot_id)
    row: Snapshot | None = lock_shared(snapshot_id)
    if row is None or row.transient or row.state == SnapshotState.DELETED:
        raise NotFound(f"There is no snapshot {snapshot_id}.")
    if row.state != SnapshotState.READY:
        raise Conflict(f"The snapshot is {row.state}; only a ready one can be published.")


def _lock(namespace: User | None, name: str) -> None:
    """One publisher of a name at a time, until the transaction ends; numbers are given out without
    gaps or twins."""
    key = f"{namespace.id if namespace else ''}/{name}"
    locks.take_for_transaction(LockClass.TEMPLATE_NAME, key)


def _newest(namespace: User | None, name: str) -> Template | None:
    standing = named(namespace, name) & Template.deleted_at.is_null()
    return Template.select().where(standing).order_by(Template.updated_at.desc(),
                                                      Template.id.desc()).first()


def _make_latest(namespace: User | None, template: Template) -> Template:
    Template.update(latest=False).where(named(namespace, template.name)
                                        & Template.latest).execute()
    Template.update(latest=True, updated_at=now()).where(Template.id == template.id).execute()
    return Template.get_by_id(template.id)
