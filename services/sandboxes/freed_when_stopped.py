"""What a sandbox that is stopped, and so deleted, gives back or forgets; the caller's transaction
stops it.

Rows of stopped sandboxes stay for ever, so what a tenant may make large goes: the source of the
agent server and the start command. While there is a snapshot that may be forked both stay, since a
fork is made by them; they go with the last one.
"""
from collections.abc import Callable

from models.database import connection, database
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from services.hosts.resting_ports import release_ports
from services.operations.begin import lock_sandbox
from services.sandboxes import agent_servers
from services.templates.presets import PRESETS

# By these a stopped sandbox still shows the web UI of its preset.
_OF_PRESETS = tuple(preset.service.start_command for preset in PRESETS.values() if preset.service)


def release(sandbox_id: str) -> None:
    """Give back its ports, and forget its secrets: variables, agent's token, callback token. Its
    snapshots have the variables of their own. What only forks need goes unless it has one."""
    release_ports(sandbox_id)
    Sandbox.update(env={}, agent_token="").where(Sandbox.id == sandbox_id).execute()
    if not _forget_launch(sandbox_id):
        agent_servers.forget_bootstrap(sandbox_id)


def end_snapshot(snapshot_id: str, write: Callable[[str], None]) -> None:
    """Have `write` say in its row that a snapshot is gone; with the last one of a stopped sandbox
    goes what was kept for forks of it. Nothing is changed if there is no such row."""
    source_id = Snapshot.select(Snapshot.source_sandbox_id).where(Snapshot.id == snapshot_id)
    with connection(), database.atomic():
        # Locked first: its stop either sees that the snapshot is gone, or is seen here.
        source = lock_sandbox(source_id.scalar())
        write(snapshot_id)
        if source is not None and source.status == SandboxStatus.STOPPED:
            _forget_launch(source.id)


def _forget_launch(sandbox_id: str) -> bool:
    """Forget what starts a stopped sandbox, whose row is locked; False if a fork may need it."""
    forked = (Snapshot.source_sandbox_id == sandbox_id) & Snapshot.state.in_(
        (SnapshotState.PENDING, SnapshotState.READY))
    if Snapshot.select().where(forked).exists():
        return False
    agent_servers.forget(sandbox_id)
    Sandbox.update(start_command=None).where(
        (Sandbox.id == sandbox_id) & Sandbox.start_command.not_in(_OF_PRESETS)).execute()
    return True
