"""Decides, under a sandbox's row lock, what has to happen before a port of it can be reached, and
begins that. Nobody waits here: who waits looks again when the row has changed."""
import enum

from models.database import connection, database
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.hosts import placement
from services.operations import outbox
from services.operations.begin import begin, lock_sandbox
from services.operations.open_limit import check_open
from services.previews.announce_port import forward_if_missing, is_forwarded
from services.previews.lookup import CHANGING_NOTHING
from services.protocols import Deps


class Reach(enum.Enum):
    """UP: it runs, and the port leads there. COMING: an operation is under way. GONE: stopped."""

    UP = "up"
    COMING = "coming"
    GONE = "gone"


def bring_up(deps: Deps, sandbox_id: str, guest_port: int) -> Reach:
    """Begin to wake a sandbox that sleeps, or to open a port that is not open; of many who ask for
    that, one begins it.

    An operation under way is left to its end, also the wake of a guest that runs and gets its
    service; captures change nothing. Raises RateLimited, Unavailable.
    """
    with connection():
        with database.atomic():
            sandbox = lock_sandbox(sandbox_id)
            if sandbox is None or sandbox.status == SandboxStatus.STOPPED:
                return Reach.GONE
            if sandbox.task is not None:
                return _during(sandbox, guest_port)
            messages = _begin(deps, sandbox, guest_port)
        outbox.flush(deps.queue, messages)
    return Reach.COMING if messages else Reach.UP


def _during(sandbox: Sandbox, guest_port: int) -> Reach:
    as_before = sandbox.status == SandboxStatus.RUNNING and sandbox.task in CHANGING_NOTHING
    return Reach.UP if as_before and is_forwarded(sandbox, guest_port) else Reach.COMING


def _begin(deps: Deps, sandbox: Sandbox, guest_port: int) -> list[OutboxMessage]:
    if sandbox.status == SandboxStatus.HIBERNATED:
        check_open(deps.settings, sandbox.owner_id)
        placement.claim_capacity(deps.settings, sandbox)
        return begin(deps.settings, sandbox, OperationKind.WAKE)[1]
    return forward_if_missing(deps, sandbox, guest_port)
