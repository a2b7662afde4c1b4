"""What sandboxes use and cost, and the tallies that answer an owner's totals without counting
rows."""
import peewee

from models.database import Row, TimeField, now


class SandboxUsage(Row):
    """What one sandbox has used in all, and how far the run that is being counted had got when it
    was last read.

    `run` names one life of its VM process; `run_cpu_ms` and `run_age_ms` are the host's counters of
    that run. `cost` is in the unit of `services.metering.prices`. Only `services.sandboxes.usage`
    writes here, and no number ever becomes smaller.
    """

    sandbox_id = peewee.TextField(primary_key=True)
    run = peewee.TextField(null=True)
    run_cpu_ms = peewee.BigIntegerField(default=0)
    run_age_ms = peewee.BigIntegerField(default=0)
    cpu_ms = peewee.BigIntegerField(default=0)
    wall_clock_ms = peewee.BigIntegerField(default=0)
    cost = peewee.DecimalField(38, 0, default=0)
    sampled_at = TimeField(null=True)

    class Meta:
        table_name = "sandbox_usage"


class UsageTally(Row):
    """A part of what an owner used in a calendar month (UTC); the parts are summed up from time to
    time (`is_sum`)."""

    id = peewee.BigAutoField()
    owner_id = peewee.TextField()
    month = peewee.DateField()
    wall_clock_ms = peewee.BigIntegerField()
    cost = peewee.DecimalField(38, 0)
    is_sum = peewee.BooleanField(default=False)

    class Meta:
        table_name = "usage_tallies"


class SandboxTally(Row):
    """How many sandboxes of a kind came into a status (or, negative, left it); written by triggers
    of `sandboxes`."""

    id = peewee.BigAutoField()
    owner_id = peewee.TextField()
    kind = peewee.TextField()
    status = peewee.TextField()
    sandboxes = peewee.BigIntegerField()
    is_sum = peewee.BooleanField(default=False)

    class Meta:
        table_name = "sandbox_tallies"


class CreditGrant(Row):
    """Compute credit an operator gave an account for one calendar month, on top of its plan's."""

    id = peewee.BigAutoField()
    owner_id = peewee.TextField()
    month = peewee.DateField()
    amount = peewee.DecimalField(18, 6)
    note = peewee.TextField(default="")
    created_at = TimeField(default=now)

    class Meta:
        table_name = "credit_grants"
