"""The data road as the services see it: the node worker's agent client behind `services.protocols.Guest`."""
from collections.abc import Callable, Iterable

from nodeworker.guest.client import AgentClient, AgentError, AgentRefused
from services.protocols import ExecOutcome, ExecRequest, Guest, GuestRefused, GuestUnreachable


class AgentGuests:
    """Connects to guest agents; implements `services.protocols.Guests`."""

    def connect(self, address: str, port: int, token: str) -> Guest:
        """The guest behind a forwarded port; opens nothing yet."""
        return AgentGuest(AgentClient(address, port, token))
