"""Opens one connection for each call to a guest agent, sends the request and takes the reply; the
calls themselves are in the modules beside it, by subject. A call may keep its connection for the
next one."""
import socket
import time
from collections.abc import Callable
from typing import Any

from guest.agent.protocol import AGENT_PORT
from guest.client.conversation import Conversation, has_input
from guest.client.deadline import Deadline
from guest.client.dialing import dial, dial_patiently
from guest.client.errors import AgentProtocolError


class AgentCaller:
    """Where an agent is and the token it takes, and the connection that the last call kept."""

    def __init__(self, host: str, port: int = AGENT_PORT, token: str = "",
                 connect_timeout_s: float = 3.0) -> None:
        self._address = (host, port)
        self._token = token
        self._connect_timeout_s = connect_timeout_s
        self._kept: socket.socket | None = None

    def close(self) -> None:
        """Close the connection that a call has kept, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _call(self, operation: str, fields: dict[str, Any], deadline: Deadline, *,
              patient: bool = False, stamp_clock: bool = False,
              keep: bool = False) -> dict[str, Any]:
        """One request whose reply is a RESULT and nothing else; `keep` leaves the connection open,
        if the agent does, too."""
        with self._open(deadline, patient=patient) as conversation:
            # once connected, or the time spent waiting for the guest would be missing from it
            if stamp_clock:
                fields = fields | {"clockNs": time.time_ns()}
            conversation.ask(self._request(operation, {**fields, "keep": keep or None}))
            reply = conversation.result()
            if keep:
                self._keep(conversation)
            return reply

    def _open(self, deadline: Deadline, *, patient: bool = False,
              wanted: Callable[[], bool] | None = None) -> Conversation:
        if patient:
            return Conversation(dial_patiently(self._address, deadline), deadline, wanted)
        return Conversation(dial(self._address, deadline, self._connect_timeout_s), deadline,
                            wanted)

    def _go_on(self, deadline: Deadline, wanted: Callable[[], bool] | None) -> Conversation:
        """On the connection that was kept, or a new one if there is none, the guest has closed it,
        or has said something that nobody asked for."""
        kept = self._kept
        if kept is None or has_input(kept):
            self.close()
            return self._open(deadline, wanted=wanted)
        self._kept = None
        return Conversation(kept, deadline, wanted)

    def _keep(self, conversation: Conversation) -> None:
        """Keep its connection for the next call, if the agent waits for one."""
        if conversation.outcome.get("kept") is True:
            self.close()
            self._kept, rest = conversation.detach()
            if rest:
                self.close()

    def _request(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The JSON of a request; a field that is None is left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        return {**given, "op": operation, "token": self._token}


def integer(reply: dict[str, Any], name: str) -> int:
    """A size or number that the guest sent; raises AgentProtocolError unless it is one."""
    value = reply.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise AgentProtocolError(f"the guest agent sent no usable {name}")
    return value
