"""Deploys: apps with their addresses, the runs that publish versions of them, and what the object
store holds of those."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import DeployStatus, RunState, RunStep


class Deploy(Row):
    """One app at one address. `live_*` say what is served and change only together, in the
    transaction that ends a run; `next_version` is the number of the next run.

    `live_epoch` is of the run that made the live version: it is part of the name of its files.
    `collect_previous_at` is when version N-1, `previous_*`, is no longer served. Of an app that is
    not static, `live_sandbox_id` serves it; until `fence_until` edges hold what is asked of it.
    """

    slug = peewee.TextField(primary_key=True)
    app_id = peewee.TextField(unique=True)
    owner_id = peewee.TextField()
    status = peewee.TextField(default=DeployStatus.BUILDING)
    next_version = peewee.IntegerField(default=1)
    live_version = peewee.IntegerField(null=True)
    live_epoch = peewee.IntegerField(null=True)
    live_static = peewee.BooleanField(null=True)
    live_sandbox_id = peewee.TextField(null=True)
    fence_until = TimeField(null=True)
    previous_version = peewee.IntegerField(null=True)
    previous_epoch = peewee.IntegerField(null=True)
    collect_previous_at = TimeField(null=True)
    created_at = TimeField(default=now)
    updated_at = TimeField(default=now)

    class Meta:
        table_name = "deploys"


class DeployRun(Row):
    """One attempt to publish a version of an app. `epoch` grows with each claim, as that of an
    operation; `step` is what is done next, `stored_epoch` the one under which its files are stored.
    `restores_version` is the earlier version that a rollback brings back.
    `error` is for the one who asked, `operator_error` for operators."""

    id = peewee.BigAutoField()
    slug = peewee.TextField()
    app_id = peewee.TextField()
    owner_id = peewee.TextField()
    version = peewee.IntegerField()
    run_id = peewee.TextField()
    deploy_intent_id = peewee.TextField(null=True)
    snapshot_id = peewee.TextField()
    state = peewee.TextField(default=RunState.QUEUED)
    step = peewee.TextField(default=RunStep.BUILD)
    node_id = peewee.TextField()
    epoch = peewee.IntegerField(default=0)
    attempts = peewee.IntegerField(default=0)
    claimed_by = peewee.TextField(null=True)
    lease_until = TimeField(null=True)
    announce_at = TimeField(null=True)
    deadline_at = TimeField()
    builder_sandbox_id = peewee.TextField(null=True)
    runtime_sandbox_id = peewee.TextField(null=True)
    restores_version = peewee.IntegerField(null=True)
    manifest = JsonField(null=True)
    stored_epoch = peewee.IntegerField(null=True)
    error = peewee.TextField(null=True)
    operator_error = peewee.TextField(null=True)
    created_at = TimeField(default=now)
    finished_at = TimeField(null=True)

    class Meta:
        table_name = "deploy_runs"


class DeployLog(Row):
    """A piece of the log of a run: `bytes` bytes from its byte `start_byte` on."""

    run = peewee.BigIntegerField()
    start_byte = peewee.BigIntegerField()
    bytes = peewee.IntegerField()
    content = peewee.TextField()

    class Meta:
        table_name = "deploy_logs"
        primary_key = peewee.CompositeKey("run", "start_byte")


class DeployPrefix(Row):
    """A prefix of the object store under which a version of an app is, or may be: written before
    the first object is. It is removed once `due_at` has come; never as long as that is empty."""

    prefix = peewee.TextField(primary_key=True)
    app_id = peewee.TextField()
    version = peewee.IntegerField()
    due_at = TimeField(null=True)
    attempts = peewee.IntegerField(default=0)
    created_at = TimeField(default=now)

    class Meta:
        table_name = "deploy_prefixes"


class RelayKey(Row):
    """Lets one sandbox read and write one prefix of the object store, through the guest gateway.
    The secret is made from `key_id` and never stored."""

    key_id = peewee.TextField(primary_key=True)
    sandbox_id = peewee.TextField(unique=True)
    prefix = peewee.TextField(unique=True)
    created_at = TimeField(default=now)

    class Meta:
        table_name = "relay_keys"


class AppVariable(Row):
    """A variable of an app. Its value is sealed (`services/deploys/apps/sealing.py`); of a secret
    it is shown to nobody. It goes with its app."""

    app_id = peewee.TextField()
    name = peewee.TextField()
    secret = peewee.BooleanField()
    sealed = peewee.BlobField()
    updated_at = TimeField(default=now)

    class Meta:
        table_name = "app_variables"
        primary_key = peewee.CompositeKey("app_id", "name")


class RetiredRuntime(Row):
    """A sandbox that serves its app no more: it is stopped at `stop_at`, or before that as soon as
    all that was asked of it is answered."""

    sandbox_id = peewee.TextField(primary_key=True)
    stop_at = TimeField()

    class Meta:
        table_name = "retired_runtimes"


class Edge(Row):
    """A host whose nginx serves apps from a directory of its own."""

    id = peewee.TextField(primary_key=True)
    heartbeat_at = TimeField()

    class Meta:
        table_name = "edges"


class StagedVersion(Row):
    """An edge has all files of a version, so it serves it as soon as that is live."""

    edge_id = peewee.TextField()
    prefix = peewee.TextField()

    class Meta:
        table_name = "staged_versions"
        primary_key = peewee.CompositeKey("edge_id", "prefix")


class AppHost(Row):
    """A host name besides its slug at which an app is found."""

    host = peewee.TextField(primary_key=True)
    app_id = peewee.TextField()
    created_at = TimeField(default=now)

    class Meta:
        table_name = "app_hosts"


class Gateway(Row):
    """A host whose edge sends requests to the sandboxes of apps, by what its gateway has told it,
    until `routes_until` at the latest. That is by Postgres's clock, so statements in SQL write and
    compare it: `services/deploys/edges/routes.py`, `services/deploys/drained_sandboxes.py`."""

    id = peewee.TextField(primary_key=True)
    routes_until = TimeField()

    class Meta:
        table_name = "gateways"


class Drain(Row):
    """A sandbox that is to get no request any more; who asked waits until `until`. The gateways
    that have told that none is in flight are in `drained_gateways`."""

    id = peewee.BigAutoField()
    sandbox_id = peewee.TextField(unique=True)
    until = TimeField()

    class Meta:
        table_name = "drains"
