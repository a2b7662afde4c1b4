"""Templates: names under which snapshots are published, privately or for everybody."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.users import User


class Template(Row):
    """One version of a template. `owner` null is the system catalogue; of a name's versions one is
    `latest`.

    A deleted version keeps its row, so that its reference never comes to mean something else.
    """

    owner = peewee.ForeignKeyField(User, column_name="owner_id", null=True, index=False)
    name = peewee.TextField()
    version = peewee.TextField()
    snapshot_id = peewee.TextField()
    start_command = peewee.TextField(null=True)
    readiness_port = peewee.IntegerField(null=True)
    ports = JsonField(default=list)
    latest = peewee.BooleanField(default=False)
    created_at = TimeField(default=now)
    updated_at = TimeField(default=now)
    deleted_at = TimeField(null=True)

    class Meta:
        table_name = "templates"
