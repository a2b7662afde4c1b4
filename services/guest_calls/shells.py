"""Opens shells in sandboxes, waking them first, and keeps a sandbox awake while one is open.

1. A sandbox that sleeps, or is about to, is woken, as its owner's wake would (contract, States:
wake on connect), but without a wait for its service: in a shell its owner sees why that does not
come. 2. The shell is an activity from then on: it never idles out, and its end restarts the idle
clock. 3. As nobody knows how long a shell stays open, its activity lasts a minute and is renewed:
should this process die, the sandbox is held no longer than that.
"""
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from guest.agent.protocol import TOO_MANY
from guest.client.errors import AgentError, AgentRefused
from models.sandboxes import Sandbox
from models.states import OperationKind, SandboxStatus
from services.errors import Conflict, Gone, RateLimited, Unavailable
from services.guest_calls.guest import connect, get_owned, unreachable
from services.guest_calls.use_while_running import in_use, renew
from services.hosts.guest_environment import environment
from services.protocols import Deps, GuestShell
from services.sandboxes import lifecycle
from services.sandboxes.caller import Caller

# A terminal's size until its client says another.
COLS, ROWS = 80, 24
HOLD_S = 60.0
RENEW_EVERY_S = 15.0
# It may be put to sleep again between its wake and the shell, but not for ever.
_WAKES = 3
_RETRY_AFTER_S = 5


@dataclass(frozen=True)
class OpenedShell:
    """A shell, the sandbox as it was when it was opened, and the activity that holds it awake."""

    sandbox: Sandbox
    activity_id: int
    shell: GuestShell


@contextmanager
def opened(deps: Deps, caller: Caller, sandbox_id: str) -> Iterator[OpenedShell]:
    """Wake the sandbox if need be, and open a shell in it; leaving the block hangs it up.

    Raises NotFound, Forbidden, WrongNode; Gone for a stopped sandbox, Conflict at once for one that
    is being deleted; Conflict, RateLimited and Unavailable as a wake does, and when the guest opens
    none.
    """
    with ExitStack() as stack:
        sandbox, activity_id = _hold_awake(deps, caller, sandbox_id, stack)
        try:
            env = environment(deps.settings, sandbox.id, sandbox.env)
            shell = connect(deps, sandbox).open_shell(COLS, ROWS, cwd=sandbox.cwd, env=env,
                                                      patient=True)
        except AgentRefused as refusal:
            raise _refused(refusal) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "the shell") from error
        yield OpenedShell(sandbox, activity_id, stack.enter_context(closing(shell)))


def keep_awake(shells: Sequence[OpenedShell]) -> None:
    """Renew the activities of open shells; to be called every RENEW_EVERY_S."""
    if shells:
        renew({shell.activity_id: shell.sandbox.id for shell in shells}, for_s=HOLD_S)


def _hold_awake(deps: Deps, caller: Caller, sandbox_id: str,
                stack: ExitStack) -> tuple[Sandbox, int]:
    for tries_left in reversed(range(_WAKES)):
        sandbox = get_owned(caller, sandbox_id)
        if sandbox.status == SandboxStatus.STOPPED:
            raise Gone("The sandbox is stopped; it does not come back.")
        try:
            return sandbox, stack.enter_context(in_use(sandbox, for_s=HOLD_S, what="a shell"))
        except Conflict:
            # A sandbox that is being deleted does not wake, however long one waits.
            if not tries_left or sandbox.task == OperationKind.STOP:
                raise
        lifecycle.wake_machine(deps, caller, sandbox_id)
    raise AssertionError("unreachable")


def _refused(refusal: AgentRefused) -> RateLimited | Unavailable:
    if refusal.code == TOO_MANY:
        return RateLimited("This sandbox has as many shells open as it can have.",
                           retry_after_s=_RETRY_AFTER_S)
    return Unavailable("The sandbox could not open a shell.", retry_after_s=_RETRY_AFTER_S)
