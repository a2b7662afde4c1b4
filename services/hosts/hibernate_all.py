"""Begins to put every running sandbox of a node to sleep, before the node goes down
(`python -m nodeworker.commands.drain`)."""
from config.settings import Settings
from models.database import connection, database
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.operations import outbox
from services.operations.begin import begin, lock_sandbox
from services.protocols import Queue

_AWAKE = (SandboxStatus.RUNNING, SandboxStatus.PROVISIONING)


def begin_hibernating(settings: Settings, queue: Queue) -> int:
    """Begin to hibernate every running sandbox of this node that has no operation under way;
    returns how many sandboxes are not asleep yet, those that are just being woken included."""
    waking = (Sandbox.task == OperationKind.WAKE) & (Sandbox.status != SandboxStatus.STOPPED)
    with connection():
        rows = Sandbox.select(Sandbox.id).where(
            (Sandbox.node_id == settings.node_id) & (Sandbox.status.in_(_AWAKE) | waking))
        awake = [row.id for row in rows]
        for sandbox_id in awake:
            _begin(settings, queue, sandbox_id)
    return len(awake)


def _begin(settings: Settings, queue: Queue, sandbox_id: str) -> None:
    with database.atomic():
        row = lock_sandbox(sandbox_id)
        if row is None or row.task is not None or row.status != SandboxStatus.RUNNING:
            return
        _, messages = begin(settings, row, OperationKind.HIBERNATE)
    outbox.flush(queue, messages)
