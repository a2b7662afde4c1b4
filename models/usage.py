"""What sandboxes and their LLM calls use and cost, the tallies that answer an owner's totals
without counting rows, and the switches that end LLM calls."""
from datetime import date

import peewee

from models.database import now
from models.row import JsonField, Row, TimeField

# The `day` of what is counted for ever.
ALL_TIME = date.min


class SandboxUsage(Row):
    """What one sandbox has used in all, and how far the run that is being counted had got when it
    was last read.

    `run` names one life of its VM process; `run_cpu_ms` and `run_age_ms` are the host's counters of
    that run; between the last two readings that were a second apart it used `cpu_permille`
    thousandths of a CPU. `cost` is in the unit of `services.metering.prices`. Only
    `services.metering.counting` writes here, and what was used in all never becomes less.
    """

    sandbox_id = peewee.TextField(primary_key=True)
    run = peewee.TextField(null=True)
    run_cpu_ms = peewee.BigIntegerField(default=0)
    run_age_ms = peewee.BigIntegerField(default=0)
    cpu_permille = peewee.IntegerField(default=0)
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


class LlmCall(Row):
    """One call that was begun; open until `ended_at` is set, once. It holds no prompt and no text.

    `sandbox_id` is empty for a call on the API host, `gateway` the process that has it in hand,
    which renews `seen_at`. `price` is that of the target (`services.llm.call_cost`), null if
    unknown. Of an open call `output_tokens` is what is thought to have come so far, and the
    reserved figures count against its owner's limits. `complete` is false where the usage is an
    estimate, `swept` true where its gateway did not end the call.
    """

    id = peewee.BigAutoField()
    sandbox_id = peewee.TextField(default="")
    owner_id = peewee.TextField()
    gateway = peewee.TextField()
    protocol = peewee.TextField()
    upstream = peewee.TextField()
    model_asked = peewee.TextField()
    model_used = peewee.TextField()
    price = JsonField(null=True)
    reserved_tokens = peewee.BigIntegerField()
    reserved_cost = peewee.DecimalField(38, 0)
    estimated_input = peewee.BigIntegerField()
    started_at = TimeField(default=now)
    first_byte_at = TimeField(null=True)
    seen_at = TimeField(default=now)
    ended_at = TimeField(null=True)
    status = peewee.IntegerField(null=True)
    input_tokens = peewee.BigIntegerField(default=0)
    output_tokens = peewee.BigIntegerField(default=0)
    cached_tokens = peewee.BigIntegerField(default=0)
    cache_write_tokens = peewee.BigIntegerField(default=0)
    reasoning_tokens = peewee.BigIntegerField(default=0)
    cost = peewee.DecimalField(38, 0, null=True)
    complete = peewee.BooleanField(null=True)
    swept = peewee.BooleanField(default=False)

    class Meta:
        table_name = "llm_calls"


class LlmTally(Row):
    """A part of what an owner or a sandbox used, added by the end of a call and summed up from time
    to time (`is_sum`).

    Each end adds three: of the owner by day (UTC) and model, of the owner for ever (`ALL_TIME`), of
    the sandbox by day. `unpriced_calls` are those whose cost is not known.
    """

    id = peewee.BigAutoField()
    owner_id = peewee.TextField()
    sandbox_id = peewee.TextField(default="")
    day = peewee.DateField()
    model = peewee.TextField(default="")
    calls = peewee.BigIntegerField()
    incomplete_calls = peewee.BigIntegerField()
    unpriced_calls = peewee.BigIntegerField()
    input_tokens = peewee.BigIntegerField()
    output_tokens = peewee.BigIntegerField()
    cached_tokens = peewee.BigIntegerField()
    cache_write_tokens = peewee.BigIntegerField()
    reasoning_tokens = peewee.BigIntegerField()
    cost = peewee.DecimalField(38, 0)
    is_sum = peewee.BooleanField(default=False)

    class Meta:
        table_name = "llm_tallies"


class LlmSwitch(Row):
    """What an operator has switched off: all calls, those of an owner, or those to an upstream."""

    scope = peewee.TextField()
    name = peewee.TextField(default="")
    reason = peewee.TextField(default="")
    created_at = TimeField(default=now)

    class Meta:
        table_name = "llm_switches"
        primary_key = peewee.CompositeKey("scope", "name")
