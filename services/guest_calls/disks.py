"""Reads how full the disk of a running sandbox is, and grows a disk that is below the platform's
floor."""
from guest.client.errors import AgentError, AgentRefused
from guest.client.results import DiskUsage
from services.errors import Unavailable
from services.guest_calls.activity import in_use, require_running
from services.guest_calls.guest import connect, get_owned, unreachable
from services.hosts import placement
from services.protocols import Deps
from services.sandboxes import lifecycle
from services.sandboxes.caller import Caller

# Contract, PATCH disk: the platform floor is 16 GB. A disk is made with 16 GiB, so that its file
# system has that much.
FLOOR_BYTES = 16 * 10**9
DEVICE_BYTES = 16 * 1024**3
# Far above any disk we make; a guest that claims more does not tell the truth.
_MOST_BYTES = 1 << 50
# As long as the operation and the guest may take together, should this process die in between.
_HOLD_S = 240.0


def usage(deps: Deps, caller: Caller, sandbox_id: str) -> DiskUsage:
    """Size and usage of the root file system, asked of the guest now; it does not count as
    activity.

    Raises Conflict unless the sandbox is running, Unavailable when the guest gives no sensible
    answer.
    """
    sandbox = get_owned(caller, sandbox_id)
    require_running(sandbox, "reading its disk")
    try:
        return _checked(connect(deps, sandbox).disk())
    except AgentRefused as refusal:
        raise _bad_answer() from refusal
    except AgentError as error:
        raise unreachable(sandbox, "the question") from error


def grow(deps: Deps, caller: Caller, sandbox_id: str) -> DiskUsage:
    """Grow a smaller disk to the floor while the sandbox runs; one that has it stays as it is. May
    be repeated.

    1. The node enlarges the block device (an operation). 2. The guest lets its mounted file system
    fill it. Whatever dies in between, nothing is lost, and repeating the call completes it. Raises
    Conflict unless the sandbox is running, Unavailable.
    """
    sandbox = get_owned(caller, sandbox_id)
    with in_use(sandbox, for_s=_HOLD_S, what="growing its disk"):
        try:
            guest = connect(deps, sandbox)
            found = _checked(guest.disk())
            if found.total_bytes >= FLOOR_BYTES:
                return found
            placement.check_disk(sandbox.node_id)
            lifecycle.grow(deps, caller, sandbox_id)
            return _checked(guest.grow_disk(DEVICE_BYTES))
        except AgentRefused as refusal:
            raise Unavailable("The guest did not grow its file system; try again.",
                              retry_after_s=5) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "growing its disk") from error


def _checked(told: DiskUsage) -> DiskUsage:
    if not 0 < told.total_bytes <= _MOST_BYTES:
        raise _bad_answer()
    if not (0 <= told.used_bytes <= told.total_bytes
            and 0 <= told.available_bytes <= told.total_bytes):
        raise _bad_answer()
    return told


def _bad_answer() -> Unavailable:
    return Unavailable("The sandbox did not give a sensible answer about its disk.",
                       retry_after_s=5)
