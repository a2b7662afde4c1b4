"""Sandboxes: what was asked for, what is true, which operation is under way, and under which names
their ports are found."""
import peewee

from models.database import now
from models.row import JsonField, Row, TimeField
from models.states import SandboxKind, SandboxStatus
from models.users import User


class Sandbox(Row):
    """One sandbox. `status` is the truth the owner sees, `task` the operation under way, `op_seq`
    its number. `preset_state` is null while its agent preset is being made ready."""

    id = peewee.TextField(primary_key=True)
    owner = peewee.ForeignKeyField(User, column_name="owner_id", index=False)
    node_id = peewee.TextField()
    kind = peewee.TextField(default=SandboxKind.API)
    status = peewee.TextField(default=SandboxStatus.PROVISIONING)
    task = peewee.TextField(null=True)
    op_seq = peewee.BigIntegerField(default=0)

    vcpus = peewee.IntegerField()
    mem_mb = peewee.IntegerField()
    cwd = peewee.TextField(default="/home/user")
    env = JsonField(default=dict)
    vm_ip = peewee.TextField(default="")
    agent_port = peewee.IntegerField()
    agent_token = peewee.TextField()
    snapshot_id = peewee.TextField(null=True)

    start_command = peewee.TextField(null=True)
    readiness_port = peewee.IntegerField(null=True)
    skip_app_processes = peewee.BooleanField(default=True)
    preset = peewee.TextField(null=True)
    preset_state = peewee.TextField(null=True)
    preset_error = peewee.TextField(null=True)

    preferred_model = peewee.TextField(default="")
    git_repository_url = peewee.TextField(null=True)
    git_ref = peewee.TextField(null=True)
    session_id = peewee.TextField(null=True)
    project_id = peewee.TextField(null=True)
    project_slug = peewee.TextField(null=True)
    app_id = peewee.TextField(null=True)

    idle_timeout_s = peewee.IntegerField()
    last_active_at = TimeField(default=now)
    idle_at = TimeField(null=True)

    error = peewee.TextField(null=True)
    operator_note = peewee.TextField(null=True)
    cold_boots = peewee.IntegerField(default=0)
    created_at = TimeField(default=now)
    started_at = TimeField(null=True)
    stopped_at = TimeField(null=True)

    class Meta:
        table_name = "sandboxes"


class AgentServer(Row):
    """What starts the agent server of one sandbox; apart from its row, which is read far more
    often. `bootstrap` holds its callback token, and goes when the sandbox stops; the row stays for
    forks of its snapshots, as long as there is one."""

    sandbox_id = peewee.TextField(primary_key=True)
    source = peewee.TextField(null=True)
    bootstrap = JsonField(null=True)

    class Meta:
        table_name = "agent_servers"


class Activity(Row):
    """Work in flight on a sandbox; while one stands and has not expired the sandbox is not idle."""

    sandbox_id = peewee.TextField(index=True)
    expires_at = TimeField()

    class Meta:
        table_name = "activities"


class PreviewHost(Row):
    """The first label of the host name that leads to a port of a sandbox, for the sandbox's life.
    Whoever knows it may come in, so it is a secret."""

    label = peewee.TextField(primary_key=True)
    sandbox_id = peewee.TextField()
    guest_port = peewee.IntegerField()
    created_at = TimeField(default=now)

    class Meta:
        table_name = "preview_hosts"
