"""What can go wrong between the host and a guest agent.

AgentError
  AgentUnreachable      no connection, or it broke before the reply ended; it may or may not have
                        happened
  AgentTimeout          the deadline passed first; the same uncertainty
  AgentTooSlow          it moved fewer bytes of a stream than it has to; the same uncertainty
  AgentProtocolError    the guest sent what is not the protocol; nothing of it may be trusted
  AgentUnauthorized     the agent does not take our token: nothing a caller could mend
  AgentRefused          the agent answered that it will not do it, with a code and a sentence
"""


class AgentError(Exception):
    """Base of everything the client raises."""


class AgentUnreachable(AgentError):
    """There was no connection, or it broke before the reply had ended."""


class AgentTimeout(AgentError):
    """The call's deadline passed."""


class AgentTooSlow(AgentError):
    """The guest moved fewer bytes of a stream in a while than it has to."""


class AgentProtocolError(AgentError):
    """The guest broke the protocol."""


class AgentUnauthorized(AgentError):
    """The agent's token and ours differ."""


class AgentRefused(AgentError):
    """The agent declined; `code` is one of the failure codes of `guest.agent.protocol`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
