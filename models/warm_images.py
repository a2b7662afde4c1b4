"""Warm images that a node is to have: of each machine shape one, and one with agent presets."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import WarmImageState


class WarmImage(Row):
    """The warm image of one shape on one node. `phase` says what is being done since `phase_at`;
    `host_tuple` what a baked one was made on; `announce_at` when its node is told (again), never if
    empty."""

    node_id = peewee.TextField()
    vcpus = peewee.IntegerField()
    mem_mb = peewee.IntegerField()
    presets = peewee.BooleanField(default=False)
    state = peewee.TextField(default=WarmImageState.QUEUED)
    phase = peewee.TextField(default="")
    phase_at = TimeField(default=now)
    attempts = peewee.IntegerField(default=0)
    host_tuple = JsonField(default=dict)
    announce_at = TimeField(null=True)
    error = peewee.TextField(null=True)
    wanted_at = TimeField(default=now)
    started_at = TimeField(null=True)
    finished_at = TimeField(null=True)

    class Meta:
        table_name = "warm_images"
        primary_key = peewee.CompositeKey("node_id", "vcpus", "mem_mb", "presets")
