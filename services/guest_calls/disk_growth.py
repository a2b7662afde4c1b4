"""How much the disk of a sandbox may grow: one that is below the platform's floor grows to it,
while the sandbox runs, and no further."""
from guest.client.errors import AgentError, AgentRefused
from guest.client.results import DiskUsage
from services.errors import Unavailable
from services.guest_calls.disk_usage import checked
from services.guest_calls.guest import connect, get_owned, unreachable
from services.guest_calls.use_while_running import in_use
from services.hosts import placement
from services.protocols import Deps
from services.sandboxes import lifecycle
from services.sandboxes.caller import Caller

# Contract, PATCH disk: the platform floor is 16 GB. A disk is made with 16 GiB, so that its file
# system has that much.
FLOOR_BYTES = 16 * 10**9
DEVICE_BYTES = 16 * 1024**3
# As long as the operation and the guest may take together, should this process die in between.
_HOLD_S = 240.0


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
            found = checked(guest.disk())
            if found.total_bytes >= FLOOR_BYTES:
                return found
            placement.check_disk(sandbox.node_id)
            lifecycle.grow(deps, caller, sandbox_id)
            return checked(guest.grow_disk(DEVICE_BYTES))
        except AgentRefused as refusal:
            raise Unavailable("The guest did not grow its file system; try again.",
                              retry_after_s=5) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "growing its disk") from error
