"""Runs commands in a sandbox; bytes go straight to the guest, never through a queue."""
from collections.abc import Callable

from guest.agent.protocol import BAD_REQUEST, NOT_FOUND
from guest.client.errors import AgentError, AgentRefused
from guest.client.results import ExecResult
from services.errors import InvalidRequest
from services.guest_calls.guest import can_answer, get_owned, refused, unreachable
from services.guest_calls.lingering_activity import in_use_lingering
from services.hosts.guest_environment import environment
from services.operations.row_changes import changes
from services.protocols import Deps, ExecRequest
from services.sandboxes.caller import Caller

OUTPUT_CAP_BYTES = 8 * 1024 * 1024
# What a call may take beyond the command's own deadline before we call the guest dead.
_SLACK_S = 15.0


def run(deps: Deps, caller: Caller, sandbox_id: str, request: ExecRequest,
        take: Callable[[int], bool]) -> ExecResult:
    """Run a command as root in a running sandbox (contract, Exec rules). Output for which `take`
    gives no room is cut, and marked.

    Raises Conflict unless it is running, or when its disk is too full to start the command,
    InvalidRequest when the guest refuses the command's parameters, Unavailable when the guest does
    not answer or cannot start it.
    """
    sandbox = get_owned(caller, sandbox_id)
    hold_s = request.timeout_ms / 1000 + _SLACK_S
    with (
        in_use_lingering(deps, sandbox, for_s=hold_s, what="exec") as guest,
        changes(sandbox.id) as changed,
    ):
        try:
            # Asked every second by each of perhaps a hundred calls: the row is read only when it
            # may have changed.
            return guest.exec(
                request.argv,
                shell=request.shell,
                cwd=request.cwd,
                env=environment(deps.settings, sandbox.id, sandbox.env, request.env),
                timeout_ms=request.timeout_ms,
                detached=request.detached,
                cap_bytes=OUTPUT_CAP_BYTES,
                wanted=lambda: not changed() or can_answer(sandbox),
                keep=True,
                take=take,
            )
        except AgentRefused as refusal:
            what = "The command could not be started"
            if refusal.code in (BAD_REQUEST, NOT_FOUND):  # of its working directory
                raise InvalidRequest(f"{what}: {refusal.message}.") from refusal
            raise refused(refusal, what) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "the command") from error
