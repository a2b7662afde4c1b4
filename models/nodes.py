"""VM hosts and what each has promised to whom."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField


class Node(Row):
    """A VM host as its own heartbeat describes it; `vcpus` and `mem_mb` are what it may promise,
    overcommit included, and `oversell` how many times that much while its machines idle: until
    they use most of its `cpus` or until its memory is scarce. Of the memory of machines beyond its
    own it keeps `ram_share` free on its disk. `lanes` are those that work, null if it does not
    tell, `presets` the agent presets that it can make ready, and `images` the builds of guest
    images that it has. An operator opens and closes it (`accepting`); until `draining_until` it is
    closed as well, because it is about to go down. Of its disk (MiB) it tells the size, what is
    free, and what is to stay free; of its `stopped_machines` how many are `kept`, how many
    `spares`, and how many processes are `prepared`."""

    id = peewee.TextField(primary_key=True)
    address = peewee.TextField()
    vcpus = peewee.IntegerField()
    mem_mb = peewee.IntegerField()
    cpus = peewee.IntegerField(null=True)
    oversell = peewee.FloatField(default=1.0)
    ram_share = peewee.FloatField(default=1.0)
    memory_is_scarce = peewee.BooleanField(default=False)
    host_port_low = peewee.IntegerField()
    host_port_high = peewee.IntegerField()
    agent_port_low = peewee.IntegerField(null=True)
    agent_port_high = peewee.IntegerField(null=True)
    host_tuple = JsonField(default=dict)
    disk_mb = peewee.IntegerField(null=True)
    disk_free_mb = peewee.IntegerField(null=True)
    disk_floor_mb = peewee.IntegerField(default=0)
    accepting = peewee.BooleanField(default=True)
    draining_until = TimeField(null=True)
    policy_restored_at = TimeField(null=True)
    lanes = JsonField(null=True)
    presets = JsonField(default=list)
    images = JsonField(default=list)
    stopped_machines = JsonField(default=dict)
    directory_id = peewee.TextField(null=True)
    started_at = TimeField(default=now)
    heartbeat_at = TimeField(default=now)

    class Meta:
        table_name = "nodes"


class PortBinding(Row):
    """A host port that belongs to one sandbox for its whole life, asleep or awake, so that its
    addresses stay true, and counts as its owner's. `bound_seq` is the number of the sandbox's last
    operation when it was bound: the node has heard of it once a later one has told it."""

    node_id = peewee.TextField()
    host_port = peewee.IntegerField()
    guest_port = peewee.IntegerField()
    sandbox_id = peewee.TextField(index=True)
    owner_id = peewee.TextField(default="")
    bound_seq = peewee.BigIntegerField(default=0)

    class Meta:
        table_name = "port_bindings"
        primary_key = peewee.CompositeKey("node_id", "host_port")


class RestingPort(Row):
    """A host port whose sandbox was stopped; nobody gets it for a while, in which it counts as the
    owner's."""

    node_id = peewee.TextField()
    host_port = peewee.IntegerField()
    owner_id = peewee.TextField(default="")
    released_at = TimeField(default=now)

    class Meta:
        table_name = "resting_ports"
        primary_key = peewee.CompositeKey("node_id", "host_port")


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
