"""Opens a shell with a terminal in a guest."""
from collections.abc import Mapping

from guest.agent.protocol import CONTROL, DEFAULT_TERM, RESULT, ProtocolError, decode_json
from guest.client.caller import AgentCaller
from guest.client.conversation import Conversation
from guest.client.deadline import Deadline
from guest.client.errors import AgentProtocolError
from guest.client.open_shell import OpenShell, check_size

OPENED = "opened"


class ShellCalls(AgentCaller):
    """The agent's `shell`."""

    def open_shell(self, cols: int, rows: int, *, cwd: str | None = None,
                   env: Mapping[str, str] | None = None, term: str = DEFAULT_TERM,
                   shell_id: str | None = None, timeout_s: float = 10.0,
                   patient: bool = False) -> OpenShell:
        """Start the login shell of the guest's user (uid 1000) on a terminal of this size; it runs
        when this returns.

        It starts in `cwd`; where that is missing, in the user's home. `env` is added to the
        environment that commands have, as for `exec`. `shell_id` is a name of the caller's for the
        shell, at most 64 characters. `patient` dials again and again until `timeout_s`, for a guest
        that is just waking up.

        Raises ValueError for a size outside 1 to 4096; AgentRefused for what the guest will not do
        (`too_many` shells are open); and what every call raises: AgentUnauthorized,
        AgentUnreachable, AgentTimeout, AgentProtocolError. The caller closes the shell.
        """
        check_size(cols, rows)
        request = {
            "cols": cols, "rows": rows, "cwd": cwd, "env": None if env is None else dict(env),
            "term": term, "id": shell_id,
        }
        with self._open(Deadline(timeout_s), patient=patient) as conversation:
            conversation.ask(self._request("shell", request))
            _wait_until_opened(conversation)
            return OpenShell(*conversation.detach())


def _wait_until_opened(conversation: Conversation) -> None:
    kind, payload = next(conversation.frames(), (RESULT, b""))
    try:
        opened = kind == CONTROL and decode_json(payload).get("type") == OPENED
    except ProtocolError as error:
        raise AgentProtocolError(str(error)) from error
    if not opened:
        raise AgentProtocolError("the guest agent did not say that the shell is open")
