"""Reads how full the disk of a running sandbox is."""
from guest.client.errors import AgentError, AgentRefused
from guest.client.results import DiskUsage
from services.errors import Unavailable
from services.guest_calls.guest import connect, get_owned, unreachable
from services.guest_calls.use_while_running import require_running
from services.protocols import Deps
from services.sandboxes.caller import Caller

# Far above any disk we make; a guest that claims more does not tell the truth.
_MOST_BYTES = 1 << 50


def usage(deps: Deps, caller: Caller, sandbox_id: str) -> DiskUsage:
    """Size and usage of the root file system, asked of the guest now; it does not count as
    activity.

    Raises Conflict unless the sandbox is running, Unavailable when the guest gives no sensible
    answer.
    """
    sandbox = get_owned(caller, sandbox_id)
    require_running(sandbox, "reading its disk")
    try:
        return checked(connect(deps, sandbox).disk())
    except AgentRefused as refusal:
        raise _bad_answer() from refusal
    except AgentError as error:
        raise unreachable(sandbox, "the question") from error


def checked(told: DiskUsage) -> DiskUsage:
    """What a guest has told of its disk; raises Unavailable unless it is sensible."""
    if not 0 < told.total_bytes <= _MOST_BYTES:
        raise _bad_answer()
    if not (0 <= told.used_bytes <= told.total_bytes
            and 0 <= told.available_bytes <= told.total_bytes):
        raise _bad_answer()
    return told


def _bad_answer() -> Unavailable:
    return Unavailable("The sandbox did not give a sensible answer about its disk.",
                       retry_after_s=5)
