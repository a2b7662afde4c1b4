"""What occupies the disks of nodes, and the images in the object store."""
import peewee

from models.database import Row, TimeField, now


class DiskUse(Row):
    """Allocated bytes of one sandbox or snapshot on its node, or of the node itself by name, as
    last sampled."""

    node_id = peewee.TextField()
    kind = peewee.TextField()
    resource_id = peewee.TextField()
    size_bytes = peewee.BigIntegerField()
    sampled_at = TimeField(default=now)

    class Meta:
        table_name = "disk_uses"
        primary_key = peewee.CompositeKey("node_id", "kind", "resource_id")


class StoreImage(Row):
    """An image in the object store; `used_at` is when an upload last named it. Once `removing`,
    nobody may."""

    key = peewee.TextField(primary_key=True)
    size_bytes = peewee.BigIntegerField(default=0)
    used_at = TimeField(default=now)
    removing = peewee.BooleanField(default=False)

    class Meta:
        table_name = "store_images"
