"""Who asks for something about sandboxes: what every use case of them begins with."""
from dataclasses import dataclass

from models.states import SandboxKind
from models.users import User


@dataclass(frozen=True)
class Caller:
    """The account that the call is for, the kind of sandbox it makes, and the node that it is
    pinned to, if any."""

    owner: User
    kind: SandboxKind = SandboxKind.API
    pinned_node: str | None = None
