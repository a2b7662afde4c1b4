"""Snapshots: captured machines that can be forked."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import SnapshotKind, SnapshotState
from models.users import User


class Snapshot(Row):
    """One snapshot; `transient` ones carry a fork of a live sandbox and go away once the fork runs.

    A `files_only` one has no files on a node: `archive_key` is its object in the store,
    `rootfs_sha` and `size_bytes` are of the tar, `tarball_size_bytes` is what the store holds of
    it.
    """

    id = peewee.TextField(primary_key=True)
    owner = peewee.ForeignKeyField(User, column_name="owner_id", index=False)
    node_id = peewee.TextField()
    source_sandbox_id = peewee.TextField()
    kind = peewee.TextField(default=SnapshotKind.FULL)
    state = peewee.TextField(default=SnapshotState.PENDING)
    transient = peewee.BooleanField(default=False)
    vcpus = peewee.IntegerField()
    mem_mb = peewee.IntegerField()
    cwd = peewee.TextField()
    env = JsonField(default=dict)
    rootfs_sha = peewee.TextField(default="")
    size_bytes = peewee.BigIntegerField(default=0)
    tarball_size_bytes = peewee.BigIntegerField(default=0)
    uploaded_to_store = peewee.BooleanField(default=False)
    upload_due_at = TimeField(null=True)
    archive_key = peewee.TextField(null=True)
    upload_attempts = peewee.IntegerField(default=0)
    upload_error = peewee.TextField(null=True)
    image_key = peewee.TextField(null=True)
    delete_due_at = TimeField(null=True)
    pause_ms = peewee.FloatField(default=0.0)
    error = peewee.TextField(null=True)
    created_at = TimeField(default=now)

    class Meta:
        table_name = "snapshots"


class StoreImage(Row):
    """An image in the object store; `used_at` is when an upload last named it. Once `removing`,
    nobody may."""

    key = peewee.TextField(primary_key=True)
    size_bytes = peewee.BigIntegerField(default=0)
    used_at = TimeField(default=now)
    removing = peewee.BooleanField(default=False)

    class Meta:
        table_name = "store_images"
