"""Makes the short-lived sandbox that a run builds in.

A builder is a copy of the version's snapshot, of its disk alone: what runs in the editor does not
run in it. It belongs to an account of the service's own, so its owner neither sees nor pays it. Its
id is written to the run in the transaction that makes it: whoever takes the run over knows it.
"""
from models.database import connection, database
from models.deploys import DeployRun
from models.ids import new_id
from models.sandboxes import Sandbox
from models.states import SandboxKind, SandboxStatus, SnapshotState
from models.users import User
from services.deploys import logs, runs
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.builder_removal import ACCOUNT, stop_builder
from services.deploys.builder_size import builder_size
from services.deploys.runs import RunClaim
from services.errors import NotFound
from services.operations import outbox
from services.protocols import Deps
from services.sandboxes.caller import Caller
from services.sandboxes.copies import node_of_copy
from services.sandboxes.insert import NewSandbox, begin_boot, insert, ports_of
from services.sandboxes.requests import LaunchOptions
from services.snapshots.find import lock_shared

_IDLE_S = 24 * 3600


def start(deps: Deps, claimed: RunClaim) -> str:
    """Make a builder for the run and begin its boot; returns its id. Raises LeaseLost, NotFound for
    a snapshot that is gone, WrongNode where its node cannot have it, Unavailable without room."""
    size = builder_size(deps.settings)
    with connection():
        with database.atomic():
            taken = lock_shared(claimed.snapshot_id)
            if taken is None or taken.state != SnapshotState.READY:
                raise NotFound(f"The snapshot {claimed.snapshot_id} is gone.")
            caller = Caller(User.get_by_id(ACCOUNT), SandboxKind.BUILDER)
            options = LaunchOptions(env=dict(taken.env), timeout=_IDLE_S, skip_app_processes=True,
                                    ports=(APP_PORT,), app_id=claimed.app_id)
            node = node_of_copy.claim(deps.settings, taken, size.vcpus, size.mem_mb,
                                      claimed.node_id, ports=ports_of(caller, options, None))
            builder = insert(deps, NewSandbox(new_id(), caller, node, size.vcpus, size.mem_mb,
                                              options, taken))
            messages = begin_boot(deps, builder, snapshot=taken)
            runs.note_builder(claimed, builder.id)
        outbox.flush(deps.queue, messages)
    return str(builder.id)


def status_of(sandbox_id: str) -> tuple[SandboxStatus, str | None]:
    """Where a builder stands, and its error; `running` means that commands can be run in it."""
    with connection():
        row = Sandbox.get_by_id(sandbox_id)
    return SandboxStatus(row.status), row.error


def forget(deps: Deps, claimed: RunClaim) -> None:
    """Remove the builder of the run, which begins anew; raises LeaseLost."""
    with connection():
        with database.atomic():
            run = DeployRun.get_by_id(claimed.id)
            runs.note_builder(claimed, None)
            logs.begin_anew(claimed.id)
            messages = stop_builder(deps, run)
        outbox.flush(deps.queue, messages)
