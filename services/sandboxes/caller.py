"""Who asks for something about sandboxes, which every use case of them begins with, and the kind of
sandbox that such a caller makes."""
from dataclasses import dataclass
from typing import Any

from models.database import connection
from models.row import About, Lookup, ReadAhead
from models.states import SandboxKind
from models.users import User


@dataclass(frozen=True)
class Caller:
    """The account that the call is for, the kind of sandbox it makes, the node that it is pinned
    to, and what was read with its credential, if any."""

    owner: User
    kind: SandboxKind = SandboxKind.API
    pinned_node: str | None = None
    read_ahead: ReadAhead | None = None

    def find(self, lookup: Lookup, sandbox_id: str) -> Any:
        """What `lookup` finds of a sandbox, whosever it is, or None: as it was when the call began,
        if that was read with its credential."""
        if self.read_ahead is not None and self.read_ahead.about == About(lookup, sandbox_id):
            return self.read_ahead.row
        with connection():
            return lookup.find(sandbox_id)


def kind_made(*, with_api_key: bool) -> SandboxKind:
    """The kind of sandbox that a caller makes: who comes with an API key programmatic ones, anybody
    else those of apps (contract, What the service does 3)."""
    return SandboxKind.API if with_api_key else SandboxKind.APP
