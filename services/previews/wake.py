"""Decides, under a sandbox's row lock, what has to happen before a port of it can be reached, and
begins that. Nobody waits here: who waits looks again when the row has changed."""
import enum
from collections.abc import Collection

from models.database import connection, database
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.errors import RateLimited
from services.hosts import placement
from services.hosts.sandbox_ports import open_ports
from services.operations import outbox
from services.operations.begin import begin, lock_sandbox
from services.operations.open_limit import check_open
from services.previews.lookup import CHANGING_NOTHING
from services.protocols import Deps


class Reach(enum.Enum):
    """UP: it runs, and the port leads there. COMING: an operation is under way. GONE: stopped."""

    UP = "up"
    COMING = "coming"
    GONE = "gone"


def bring_up_ports(deps: Deps, sandbox_id: str, guest_ports: Collection[int], *,
                   even_closed: bool = False) -> dict[int, Reach]:
    """Begin to wake a sandbox that sleeps, or to open those of the ports that are not open; of many
    who ask for that, one begins it. Returns how it is with each port.

    An operation under way is left to its end, also the wake of a guest that runs and gets its
    service; captures change nothing. A node that is closed wakes it only with `even_closed`. Raises
    RateLimited, Unavailable.
    """
    with connection():
        with database.atomic():
            sandbox = lock_sandbox(sandbox_id)
            if sandbox is None or sandbox.status == SandboxStatus.STOPPED:
                return dict.fromkeys(guest_ports, Reach.GONE)
            closed, messages = set(guest_ports) - _reached(sandbox), []
            if closed and sandbox.task is None:
                try:
                    messages = _begin(deps, sandbox, even_closed=even_closed)
                except RateLimited:
                    if closed == set(guest_ports):
                        raise
                    # Who asks for a port that is open has an answer; the others hear of it when
                    # they ask again.
        outbox.flush(deps.queue, messages)
    return {port: Reach.COMING if port in closed else Reach.UP for port in guest_ports}


def bring_up(deps: Deps, sandbox_id: str, guest_port: int, *, even_closed: bool = False) -> Reach:
    """The same of one port."""
    return bring_up_ports(deps, sandbox_id, (guest_port,), even_closed=even_closed)[guest_port]


def _reached(sandbox: Sandbox) -> set[int]:
    """The ports that lead to the guest now."""
    as_before = sandbox.task is None or sandbox.task in CHANGING_NOTHING
    if sandbox.status != SandboxStatus.RUNNING or not as_before:
        return set()
    return open_ports(sandbox.id)


def _begin(deps: Deps, sandbox: Sandbox, *, even_closed: bool) -> list[OutboxMessage]:
    check_open(deps.settings, sandbox)
    if sandbox.status != SandboxStatus.HIBERNATED:
        return begin(deps.settings, sandbox, OperationKind.FORWARD)[1]
    placement.claim_capacity(deps.settings, sandbox, even_closed=even_closed)
    return begin(deps.settings, sandbox, OperationKind.WAKE)[1]
