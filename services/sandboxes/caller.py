"""Who asks for something about sandboxes, which every use case of them begins with, and the kind of
sandbox that such a caller makes."""
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


def kind_made(*, with_api_key: bool) -> SandboxKind:
    """The kind of sandbox that a caller makes: who comes with an API key programmatic ones, anybody
    else those of apps (contract, What the service does 3)."""
    return SandboxKind.API if with_api_key else SandboxKind.APP
